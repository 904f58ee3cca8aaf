// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// A mapping given in the configuration (lr_scheduler_kwargs, config_overrides, ...), kept as one
// line of valid JSON so that headers need no JSON library. Empty means unset. After loading it is
// canonical (no spaces, keys in the order given): parse it with parse_json.
struct JsonText {
  std::string text;

  [[nodiscard]] bool empty() const { return text.empty(); }
  friend bool operator==(const JsonText&, const JsonText&) = default;
};

}  // namespace finetune
