// SPDX-License-Identifier: MIT
#include "optim/parameter_chunks.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/kernels/formats.h"

namespace finetune {
namespace {

// Values at a time. On a CPU weight and gradient then lie in the second-level caches of two cores;
// elsewhere what counts is that a call is worth starting. Both are multiples of any vector, so that
// torch's kernels give the bits that they give for the whole tensor.
constexpr int64_t kOnCpu = int64_t{1} << 18;
constexpr int64_t kElsewhere = int64_t{1} << 24;

Tensor flat(const Tensor& tensor) { return tensor.detach().view(-1); }

}  // namespace

Tensor ParameterChunk::of(const Tensor& state) const {
  return state.view(-1).narrow(0, first, count);
}

void update_in_chunks(const Parameter& parameter, double factor, uint64_t rounding_key,
                      const std::function<void(const ParameterChunk&)>& update) {
  FT_CHECK(parameter.weight.is_contiguous() && parameter.gradient.is_contiguous(),
           "parameters and gradients are contiguous");
  const Tensor weight = flat(parameter.weight);
  const Tensor gradient = flat(parameter.gradient);
  const bool is_wide = weight.scalar_type() == at::kFloat;
  const bool gradient_is_wide = gradient.scalar_type() == at::kFloat;
  const int64_t size = std::min(weight.numel(), weight.is_cpu() ? kOnCpu : kElsewhere);
  const auto wide = weight.options().dtype(at::kFloat);
  const Tensor values = is_wide ? Tensor() : at::empty({size}, wide);
  const Tensor scaled = gradient_is_wide && factor == 1.0 ? Tensor() : at::empty({size}, wide);
  for (int64_t first = 0; first < weight.numel(); first += size) {
    const int64_t count = std::min(size, weight.numel() - first);
    const Tensor stored = weight.narrow(0, first, count);
    ParameterChunk chunk{.first = first,
                         .count = count,
                         .weight = is_wide ? stored : values.narrow(0, 0, count),
                         .gradient = gradient.narrow(0, first, count)};
    if (scaled.defined()) {
      const Tensor target = scaled.narrow(0, 0, count);
      target.copy_(chunk.gradient);
      if (factor != 1.0) target.mul_(factor);
      chunk.gradient = target;
    }
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

}  // namespace finetune
