// SPDX-License-Identifier: MIT
#include "finetune/nn/dora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/nn/pass.h"

namespace finetune::nn {
namespace {

// Rows [first, first + count) of W + s B A, in new memory.
Tensor merged_rows(const LoraTerm& lora, const Weight& weight, bool is_transposed,
                   const ParameterStore& store, int64_t first, int64_t count) {
  const Tensor rows = to_overwrite(store.values_of_rows(weight, first, count));
  const Tensor a = store.values(lora.a);
  const Tensor b = store.values(lora.b);
  if (is_transposed) {  // (s B A)^T = s A^T B^T
    const Tensor factor = a.narrow(1, first, count).t() * lora.scale;
    product_into(Precision::kFloat32, rows, factor, b.t(), 1.0);
  } else {
    product_into(Precision::kFloat32, rows, b.narrow(0, first, count) * lora.scale, a, 1.0);
  }
  return rows;
}

Tensor computed_norm(const LoraTerm& lora, const Weight& weight, bool is_transposed,
                     const ParameterStore& store) {
  constexpr int64_t kBlock = int64_t{1} << 18;  // values: they stay in a cache
  const c10::NoGradGuard no_grad;
  const int64_t rows = weight.size(0);
  const int64_t step = std::max<int64_t>(1, kBlock / weight.size(1));
  const auto options = store.tensor(weight).options().dtype(at::kFloat).requires_grad(false);
  const Tensor squares = at::zeros({weight.size(is_transposed ? 1 : 0)}, options);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    const Tensor merged = merged_rows(lora, weight, is_transposed, store, first, count);
    const Tensor sums = merged.mul_(merged).sum(is_transposed ? 0 : 1);
    if (is_transposed) {
      squares.add_(sums);
    } else {
      squares.narrow(0, first, count).copy_(sums);
    }
  }
  return squares.sqrt_();
}

}  // namespace

Tensor dora_norm(const LoraTerm& lora, const Weight& weight, bool is_transposed,
                 ParameterStore& store) {
  return store.derived(lora.magnitude,
                       [&] { return computed_norm(lora, weight, is_transposed, store); });
}

}  // namespace finetune::nn
