// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "finetune/tensor/finite.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// A tensor whose values are computed while it is written, some rows at a time, so that no complete
// second copy exists.
struct LazyTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;
  // Returns rows [first, first + count) of the first dimension, of type `type`, on any device; a
  // tensor without dimensions has one row. May be called more than once, from one thread at a time;
  // the next call may overwrite the result.
  std::function<Tensor(int64_t first, int64_t count)> rows = {};

  [[nodiscard]] uint64_t elements() const;
  [[nodiscard]] uint64_t bytes() const;
};
using LazyTensors = std::vector<LazyTensor>;

// Returns a lazy tensor whose values are read when it is written.
[[nodiscard]] LazyTensor lazy_tensor(std::string name, const Tensor& tensor);
[[nodiscard]] LazyTensors lazy_tensors(const NamedTensors& tensors);

// Calls `sink` with the tensor's bytes in file order, some MiB at a time. With Numbers::kFinite,
// NaN or Inf is Error(kData) with tensor and element.
void for_each_piece(const LazyTensor& tensor,
                    const std::function<void(const void* data, size_t bytes)>& sink,
                    Numbers numbers = Numbers::kFinite);

}  // namespace finetune
