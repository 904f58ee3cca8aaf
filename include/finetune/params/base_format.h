// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/params/format.h"

namespace finetune {

// How the frozen weights under an adapter are kept.
struct BaseFormat {
  WeightFormat weights = WeightFormat::kFloat32;
  // Of the matrices of linear layers, if another: with load_in_4bit.
  std::optional<WeightFormat> matrices = {};
  // Layers that keep `weights` nevertheless: beginnings or ends of their names, up to a dot, as
  // transformers' llm_int8_skip_modules.
  std::vector<std::string> skipped = {};
  // Parameters that the base's files have in MXFP4, and that stay so.
  std::vector<std::string> mxfp4 = {};

  [[nodiscard]] WeightFormat of(const std::string& parameter, ParameterRole role) const;
  [[nodiscard]] WeightFormat most() const { return matrices.value_or(weights); }
};

}  // namespace finetune
