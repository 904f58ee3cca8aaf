// SPDX-License-Identifier: MIT
#include "finetune/kernels/nf4.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {

static_assert(kNf4Values == kNf4Block, "both sides know one block");

Tensor dequantize_nf4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                      at::ScalarType type) {
  const bool is_known = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  if (first % 8 != 0 || !is_known) return plain::dequantize_nf4(codes, scales, first, count, type);
  const Tensor values = at::empty({count}, scales.options().dtype(type));
  Launch launch(codes);
  Nf4Arguments arguments = {.codes = launch.address<unsigned char>(codes, nf4_code_bytes(count)),
                            .scales = launch.address<float>(scales, 4 * nf4_blocks(count)),
                            .values = launch.writes(values),
                            .first = first,
                            .count = count,
                            .is_aligned = is_aligned(count, {values}, 8),
                            .map = {}};
  std::ranges::copy(nf4_map(), arguments.map);
  constexpr int64_t kValuesOfBlock = int64_t{8} * kThreads;
  launch.run<kernel::dequantize_nf4>(
      value_type_of(values), 0, {.x = (count + kValuesOfBlock - 1) / kValuesOfBlock}, arguments);
  return values;
}

}  // namespace finetune::kernels::cuda
