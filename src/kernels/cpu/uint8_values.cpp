// SPDX-License-Identifier: MIT
#include "finetune/kernels/uint8_values.h"

#include <ATen/Parallel.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/loops/uint8_codes.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels {

Uint8Values uint8_values(const Tensor& x) {
  const auto [least, most] = at::aminmax(x);
  const float low = std::min(0.0F, least.item<float>());
  const float high = std::max(0.0F, most.item<float>());
  float scale = high > low ? (high - low) / 255.0F : 1.0F;
  float zero = std::clamp(std::nearbyint(-low / scale), 0.0F, 255.0F);
  // So that what is computed with it is NaN, too; min and max above lose it.
  if (!std::isfinite(least.item<float>() + most.item<float>())) {
    scale = std::nanf("");
    zero = 0.0F;
  }
  const Tensor values = x.contiguous();
  const Tensor codes = at::empty(values.sizes(), values.options().dtype(at::kByte));
  const auto* from = values.const_data_ptr<float>();
  auto* to = codes.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, values.numel(), kValuesPerThread, [&](int64_t begin, int64_t end) {
    uint8_codes(from + begin, end - begin, scale, zero, to + begin);
  });
  return {.codes = codes, .scale = scale, .zero = static_cast<int64_t>(zero)};
}

}  // namespace finetune::kernels
