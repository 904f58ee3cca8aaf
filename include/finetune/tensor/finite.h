// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/base/error.h"
#include "finetune/tensor/tensor.h"

// NaN and infinite numbers, found at the speed of reading memory and without a copy. Integers and
// booleans are always finite.
namespace finetune {

// Whether a file may hold any.
enum class Numbers { kFinite, kAny };

// A value to be written is NaN or Inf (kData).
class NonFinite : public Error {
 public:
  explicit NonFinite(const std::string& message) : Error(ErrorKind::kData, message) {}
};

// On any device; a large tensor is divided among torch's threads.
[[nodiscard]] bool is_finite(const Tensor& values);

// The first that is not, in the order of memory, found by the calling thread alone. Requires:
// contiguous, on the CPU.
[[nodiscard]] std::optional<int64_t> first_nonfinite(const Tensor& values);

// Checks values of a file that a run could resume from. `values` are elements from `first_element`
// on of the tensor `name`. Requires: as first_nonfinite. Throws NonFinite with tensor and index.
void refuse_nonfinite(const std::string& name, const Tensor& values, int64_t first_element = 0);

}  // namespace finetune
