// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// A mapping in the configuration (lr_scheduler_kwargs, config_overrides, ...), stored as one line
// of valid JSON so that headers need no JSON library. Empty: unset. After loading it is canonical
// (no spaces, keys in the given order); parse it with parse_json.
struct JsonText {
  std::string text;

  [[nodiscard]] bool empty() const { return text.empty(); }
  friend bool operator==(const JsonText&, const JsonText&) = default;
};

}  // namespace finetune
