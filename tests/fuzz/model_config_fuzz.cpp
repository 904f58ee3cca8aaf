// SPDX-License-Identifier: MIT
// Input: the text of a model's config.json. What is accepted is written and read back the same.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/model/model_config.h"

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
  } catch (const Error&) {
  }
  return 0;
}
