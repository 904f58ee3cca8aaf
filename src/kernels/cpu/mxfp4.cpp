// SPDX-License-Identifier: MIT
#include "finetune/kernels/mxfp4.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/loops/mxfp4.h"
#include "kernels/cpu/operations.h"

namespace finetune::kernels::cpu {
namespace {

Mxfp4Pairs mxfp4_pairs() {
  Mxfp4Pairs pairs{};
  for (size_t byte = 0; byte < pairs.size(); ++byte) {
    pairs[byte] = {kMxfp4Map[byte & 15], kMxfp4Map[byte >> 4]};
  }
  return pairs;
}

}  // namespace

Tensor dequantize_mxfp4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                        at::ScalarType type) {
  static const Mxfp4Pairs pairs = mxfp4_pairs();
  constexpr int64_t kGrain = 2048;  // blocks
  const Tensor values = at::empty({count}, scales.options().dtype(at::kFloat));
  const auto* bytes = codes.const_data_ptr<uint8_t>() + first / 2;
  const auto* powers = scales.const_data_ptr<uint8_t>() + first / kMxfp4Block;
  auto* const out = values.mutable_data_ptr<float>();
  at::parallel_for(0, count / kMxfp4Block, kGrain, [&](int64_t begin, int64_t end) {
    dequantize_mxfp4_blocks(bytes + begin * (kMxfp4Block / 2), powers + begin, pairs, end - begin,
                            out + begin * kMxfp4Block);
  });
  return type == at::kFloat ? values : values.to(type);
}

}  // namespace finetune::kernels::cpu
