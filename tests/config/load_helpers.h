// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/config/load.h"

namespace finetune::testing {

inline LoadedConfig load_yaml(const std::string& text,
                              const std::vector<std::string>& overrides = {}) {
  return load_config_text(text, "run.yaml", overrides);
}

// Returns the message of the error that loading throws; empty if it succeeds.
inline std::string load_error(const std::string& text, const std::string& name = "run.yaml",
                              const std::vector<std::string>& overrides = {}) {
  try {
    (void)load_config_text(text, name, overrides);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kConfig ? error.what() : "wrong kind of error";
  }
  return "";
}

}  // namespace finetune::testing
