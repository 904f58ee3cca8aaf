// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace finetune {

// Where the keys of a configuration stand.
struct KeyLocations {
  std::string path = {};                            // of the file; empty: all are overrides
  std::map<std::string, std::string> origins = {};  // key -> "file:line" or "command line"

  // Returns where the key was set; if it was not, the file's name (or "configuration").
  [[nodiscard]] std::string where(std::string_view key) const;
  [[nodiscard]] bool is_set(std::string_view key) const;
};

// Throws Error(kConfig): "run.yaml:12: output_dir: <why>".
[[noreturn]] void refuse_key(const KeyLocations& locations, std::string_view key,
                             const std::string& why);

}  // namespace finetune
