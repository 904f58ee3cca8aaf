// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/kernels/parameter_tensors.h"
#include "finetune/params/format.h"
#include "finetune/params/weight.h"

namespace finetune {

// Where the values of a parameter are kept for the next start.
enum class WeightHome {
  kCheckpoint,  // in each checkpoint
  // In the folder that the run started from, which a checkpoint names with the hash of its content
  // instead of saving them. Requires: not trained.
  kBase,
};

// Formats of one parameter, where it is kept, and whether it is trained.
struct ParameterFormat {
  WeightFormat weight = WeightFormat::kFloat32;
  GradientFormat gradient = GradientFormat::kFloat32;  // of a trained parameter
  // False: frozen. It has no gradient and no optimizer slot; additions to its gradient are ignored.
  bool trainable = true;
  WeightHome home = WeightHome::kCheckpoint;
};

// A weight with its values and, if there is one, its gradient.
struct Parameter : ParameterTensors {
  Weight handle;
  ParameterFormat format = {};

  [[nodiscard]] const std::string& name() const { return handle.name(); }
  [[nodiscard]] ParameterRole role() const { return handle.role(); }
};

// Returns the index of a weight's parameter, which is its id. Throws std::logic_error for a weight
// of another model.
[[nodiscard]] size_t index_in(const std::vector<Parameter>& parameters, const Weight& weight);

}  // namespace finetune
