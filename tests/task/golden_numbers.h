// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace finetune::testing {

// Returns all numbers of nested lists, in their order.
inline std::vector<float> numbers_in(const nlohmann::ordered_json& json) {
  std::vector<float> numbers;
  const nlohmann::ordered_json flat = json.flatten();
  for (const auto& item : flat) numbers.push_back(item.get<float>());
  return numbers;
}

}  // namespace finetune::testing
