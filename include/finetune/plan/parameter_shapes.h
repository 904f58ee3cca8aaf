// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"

namespace finetune {

struct ParameterShape {
  std::string name;
  std::vector<int64_t> sizes;

  [[nodiscard]] int64_t count() const;  // of values
};

// Every parameter of the model that make_masked_lm (no head) or make_head_model makes, without
// making it. A test compares the two.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(const ModelConfig& config,
                                                           std::optional<Head> head);

}  // namespace finetune
