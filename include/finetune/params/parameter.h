// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
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

// The ranks that divide a parameter's values among them; one: each rank has all.
struct Division {
  int64_t rank = 0;
  int64_t ranks = 1;
};

// A range of a flattened parameter's values.
struct ValueRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Values are divided at multiples of this number: of the blocks of all formats of weights and
// states, and of those that gradients' squares are summed in, so that neither depends on the
// division.
inline constexpr int64_t kDivisionUnit = 16384;

// The values that a rank keeps of `values`: the first ranks have as many as each other, the last
// ones fewer.
[[nodiscard]] ValueRange part_of_values(int64_t values, int64_t rank, int64_t ranks);

// Formats of one parameter, where it is kept, and whether it is trained.
struct ParameterFormat {
  WeightFormat weight = WeightFormat::kFloat32;
  GradientFormat gradient = GradientFormat::kFloat32;  // of a trained parameter
  // False: frozen. It has no gradient and no optimizer slot; additions to its gradient are ignored.
  bool trainable = true;
  WeightHome home = WeightHome::kCheckpoint;
  Division division = {};
};

// A weight with its values and, if there is one, its gradient. Of a divided one the tensors are
// flat and have the values of part() alone; while a micro-batch is computed, the gradient has all
// values in the weight's shape.
struct Parameter : ParameterTensors {
  Weight handle;
  ParameterFormat format = {};

  [[nodiscard]] const std::string& name() const { return handle.name(); }
  [[nodiscard]] ParameterRole role() const { return handle.role(); }
  [[nodiscard]] bool is_divided() const { return format.division.ranks > 1; }
  // The values that this rank has.
  [[nodiscard]] ValueRange part() const { return part_of(format.division.rank); }
  [[nodiscard]] ValueRange part_of(int64_t rank) const {
    return part_of_values(handle.numel(), rank, format.division.ranks);
  }
};

// Returns the index of a weight's parameter, which is its id. Throws std::logic_error for a weight
// of another model.
[[nodiscard]] size_t index_in(const std::vector<Parameter>& parameters, const Weight& weight);

}  // namespace finetune
