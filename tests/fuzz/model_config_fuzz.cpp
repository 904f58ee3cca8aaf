// SPDX-License-Identifier: MIT
// Input: the text of a model's config.json. An accepted text can be written and read back
// unchanged, and a small model of it can be planned: shapes of parameters and a dry run of its
// layers.
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

namespace {

// Small enough for thousands of dry runs per minute.
bool is_small(const finetune::ModelConfig& config) {
  return config.vocab_size <= 1000 && config.hidden_size <= 64 && config.intermediate_size <= 256 &&
         config.num_hidden_layers <= 8 && config.num_attention_heads <= 16 &&
         config.max_position_embeddings <= 4096;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const ModelConfig config =
        parse_model_config(parse_json(text, "input", ErrorKind::kData), "input");
    const std::string written = model_config_json(config, "");
    const ModelConfig again =
        parse_model_config(parse_json(written, "written", ErrorKind::kData), "written");
    if (model_config_json(again, "") != written) __builtin_trap();
    if (!is_small(config)) return 0;
    static_cast<void>(parameter_shapes(config, std::nullopt));
    static_cast<void>(predict_memory({.model = config, .head = std::nullopt, .length = 4}, {}));
  } catch (const Error&) {
  }
  return 0;
}
