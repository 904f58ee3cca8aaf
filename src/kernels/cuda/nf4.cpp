// SPDX-License-Identifier: MIT
// Both formats of four bits.
#include "finetune/kernels/nf4.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "finetune/kernels/mxfp4.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {

static_assert(kNf4Values == kNf4Block, "both sides know one block");

namespace {

enum Format : int { kNf4, kMxfp4 };  // variants of device/nf4.cu

bool is_value_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

Tensor dequantize(Format format, const Tensor& codes, const void* scales, Nf4Arguments arguments,
                  at::ScalarType type, Launch& launch) {
  const int64_t count = arguments.count;
  const Tensor values = at::empty({count}, codes.options().dtype(type));
  arguments.codes = launch.address<unsigned char>(codes, (count + 1) / 2);
  arguments.scales = scales;
  arguments.values = launch.writes(values);
  arguments.is_aligned = is_aligned(count, {values}, 8);
  constexpr int64_t kValuesOfBlock = int64_t{8} * kThreads;
  launch.run<kernel::dequantize_nf4>(value_type_of(values), format,
                                     {.x = (count + kValuesOfBlock - 1) / kValuesOfBlock},
                                     arguments);
  return values;
}

}  // namespace

Tensor dequantize_nf4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                      at::ScalarType type) {
  if (first % 8 != 0 || !is_value_type(type)) {
    return plain::dequantize_nf4(codes, scales, first, count, type);
  }
  Launch launch(codes);
  Nf4Arguments arguments = {};
  arguments.first = first;
  arguments.count = count;
  std::ranges::copy(nf4_map(), arguments.map);
  return dequantize(kNf4, codes, launch.address<float>(scales, 4 * nf4_blocks(count)), arguments,
                    type, launch);
}

Tensor dequantize_mxfp4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                        at::ScalarType type) {
  if (!is_value_type(type)) return plain::dequantize_mxfp4(codes, scales, first, count, type);
  Launch launch(codes);
  Nf4Arguments arguments = {};
  arguments.first = first;
  arguments.count = count;
  std::ranges::copy(kMxfp4Map, arguments.map);
  return dequantize(kMxfp4, codes, launch.address<unsigned char>(scales, count / kMxfp4Block),
                    arguments, type, launch);
}

}  // namespace finetune::kernels::cuda
