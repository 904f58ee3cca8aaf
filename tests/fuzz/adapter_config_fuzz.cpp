// SPDX-License-Identifier: MIT
// Input: the text of an adapter_config.json. An accepted text names layers of a small model, or is
// refused with a reason.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/model/model_config.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/plan/memory_plan.h"
#include "model/adapter_files.h"

namespace {

const finetune::ModelConfig& base() {
  static const finetune::ModelConfig config = finetune::parse_model_config(
      finetune::parse_json(R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 16,
                               "intermediate_size": 32, "num_hidden_layers": 2,
                               "num_attention_heads": 2, "num_key_value_heads": 1,
                               "max_position_embeddings": 16})",
                           "base", finetune::ErrorKind::kData),
      "base");
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    ModelConfig config = base();
    config.lora = parse_adapter_config(parse_json(text, "input", ErrorKind::kData), "input");
    static_cast<void>(parameter_shapes(config, std::nullopt));
    static_cast<void>(predict_memory({.model = config, .head = std::nullopt, .length = 4}, {}));
  } catch (const Error&) {
  }
  return 0;
}
