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

// Every parameter of the model that make_language_model (no head), make_pretraining_model or
// make_head_model makes, in its order: the model itself, built on the meta device. Throws what they
// throw.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(const ModelConfig& config,
                                                           std::optional<Head> head);

}  // namespace finetune
