// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string_view>

namespace finetune::chat {

struct ShippedTemplate {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<const ShippedTemplate> shipped_templates();

}  // namespace finetune::chat
