// SPDX-License-Identifier: MIT
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/config/dump.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"

namespace {

// Any text either loads or throws an Error; a loaded configuration can be dumped, and the dump
// loads to the same values.
void load(std::string_view text, const std::string& name,
          const std::vector<std::string>& overrides) {
  using finetune::Error;
  try {
    const finetune::LoadedConfig config = finetune::load_config_text(text, name, overrides);
    const std::string json = finetune::to_json(config.args).dump();
    // Paths from the command line are dumped unchanged, so this file name has no folder.
    const finetune::LoadedConfig again = finetune::load_config_text(json, "again.json", {});
    if (finetune::to_json(again.args).dump() != json) std::abort();
    finetune::validate(config, finetune::Purpose::kTrain);
  } catch (const Error& error) {
    if (error.kind() != finetune::ErrorKind::kConfig) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  const std::string_view text = input.substr(1);
  switch (input[0] % 3) {
    case 0:
      load(text, "fuzz.yaml", {});
      break;
    case 1:
      load(text, "fuzz.json", {});
      break;
    default: {  // words of a command line, one per line
      std::vector<std::string> words;
      for (size_t start = 0; start <= text.size() && words.size() < 100;) {
        const size_t end = std::min(text.find('\n', start), text.size());
        words.emplace_back(text.substr(start, end - start));
        start = end + 1;
      }
      load("seed: 1\n", "fuzz.yaml", words);
    }
  }
  return 0;
}
