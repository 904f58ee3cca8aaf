// SPDX-License-Identifier: MIT
#include "finetune/kernels/parameter_chunks.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/kernels/formats.h"
#include "kernels/kernels.h"

namespace finetune {
namespace {

Tensor flat(const Tensor& tensor) { return tensor.detach().view(-1); }

int64_t chunk_size(const Tensor& weight, int64_t row) {
  const int64_t rows =
      std::max<int64_t>(1, kernels::kernels_for(weight.device()).chunk_values / row);
  return std::min(weight.numel(), rows * row);
}

// The gradient in chunks, copied only if it must be changed.
class GradientChunks {
 public:
  GradientChunks(const Parameter& parameter, double factor, int64_t size)
      : gradient_(flat(parameter.gradient)), factor_(factor) {
    if (gradient_.scalar_type() != at::kFloat || factor != 1.0) {
      scaled_ = at::empty({size}, gradient_.options().dtype(at::kFloat));
    }
  }

  [[nodiscard]] Tensor part(int64_t first, int64_t count) const {
    const Tensor stored = gradient_.narrow(0, first, count);
    if (!scaled_.defined()) return stored;
    Tensor result = scaled_.narrow(0, 0, count);
    if (stored.scalar_type() == at::kFloat) {  // in one pass
      return at::mul_out(result, stored, at::native::wrapped_scalar_tensor(factor_));
    }
    result.copy_(stored);
    if (factor_ != 1.0) result.mul_(factor_);
    return result;
  }

 private:
  Tensor gradient_;
  Tensor scaled_;
  double factor_;
};

void check(const Parameter& parameter, int64_t row) {
  FT_CHECK(parameter.weight.is_contiguous() && parameter.gradient.is_contiguous(),
           "parameters and gradients are contiguous");
  FT_CHECK(row > 0 && parameter.weight.numel() % row == 0, "whole rows");
}

}  // namespace

Tensor ParameterChunk::of(const Tensor& state) const {
  return state.view(-1).narrow(0, first, count);
}

void read_gradient_in_chunks(const Parameter& parameter, double factor,
                             const std::function<void(const ParameterChunk&)>& read, int64_t row) {
  check(parameter, row);
  const int64_t total = parameter.weight.numel();
  const int64_t size = chunk_size(parameter.weight, row);
  const GradientChunks gradients(parameter, factor, size);
  for (int64_t first = 0; first < total; first += size) {
    const int64_t count = std::min(size, total - first);
    read({.first = first,
          .count = count,
          .weight = Tensor(),
          .gradient = gradients.part(first, count)});
  }
}

void update_in_chunks(const Parameter& parameter, double factor, uint64_t rounding_key,
                      const std::function<void(const ParameterChunk&)>& update, int64_t row) {
  check(parameter, row);
  const Tensor weight = flat(parameter.weight);
  const bool is_wide = weight.scalar_type() == at::kFloat;
  const int64_t size = chunk_size(weight, row);
  const GradientChunks gradients(parameter, factor, size);
  const Tensor values = is_wide ? Tensor() : at::empty({size}, weight.options().dtype(at::kFloat));
  for (int64_t first = 0; first < weight.numel(); first += size) {
    const int64_t count = std::min(size, weight.numel() - first);
    const Tensor stored = weight.narrow(0, first, count);
    const ParameterChunk chunk{.first = first,
                               .count = count,
                               .weight = is_wide ? stored : values.narrow(0, 0, count),
                               .gradient = gradients.part(first, count)};
    if (parameter.correction.defined()) {
      const Tensor correction = flat(parameter.correction).narrow(0, first, count);
      join_values(stored, correction, chunk.weight);
      update(chunk);
      split_values(chunk.weight, stored, correction);
    } else if (!is_wide) {
      chunk.weight.copy_(stored);
      update(chunk);
      round_stochastically(stored, chunk.weight,
                           {.key = rounding_key, .first_element = static_cast<uint64_t>(first)});
    } else {
      update(chunk);
    }
  }
}

bool is_asynchronous(const Tensor& x) { return kernels::kernels_for(x.device()).is_asynchronous; }

}  // namespace finetune
