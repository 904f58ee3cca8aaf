// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/base/error.h"
#include "finetune/tensor/tensor.h"

// Detection of NaN and Inf at memory bandwidth and without a copy. Integers and booleans are always
// finite.
namespace finetune {

// Whether a file may contain NaN or Inf.
enum class Numbers { kFinite, kAny };

// A value to be written is NaN or Inf (kData).
class NonFinite : public Error {
 public:
  explicit NonFinite(const std::string& message) : Error(ErrorKind::kData, message) {}
};

// Works on any device; a large tensor is divided among torch's threads.
[[nodiscard]] bool is_finite(const Tensor& values);

// Returns the index of the first non-finite value in memory order; uses only the calling thread.
// Requires: contiguous, on the CPU.
[[nodiscard]] std::optional<int64_t> first_nonfinite(const Tensor& values);

// Rejects non-finite values in a file from which a run could resume. `values` are the elements of
// tensor `name` from `first_element`. Requires: as first_nonfinite. Throws NonFinite with tensor
// and index.
void refuse_nonfinite(const std::string& name, const Tensor& values, int64_t first_element = 0);

}  // namespace finetune
