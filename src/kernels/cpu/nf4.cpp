// SPDX-License-Identifier: MIT
#include "finetune/kernels/nf4.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/loops/nf4.h"
#include "kernels/cpu/operations.h"

namespace finetune::kernels::cpu {
namespace {

Nf4Pairs make_pairs() {
  Nf4Pairs pairs{};
  for (size_t byte = 0; byte < pairs.size(); ++byte) {
    pairs[byte] = {nf4_map()[byte >> 4], nf4_map()[byte & 15]};
  }
  return pairs;
}

}  // namespace

Tensor dequantize_nf4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                      at::ScalarType type) {
  static const Nf4Pairs pairs = make_pairs();
  constexpr int64_t kGrain = 65536;  // values
  const Tensor values = at::empty({count}, scales.options());
  const auto* bytes = codes.const_data_ptr<uint8_t>();
  const auto* factors = scales.const_data_ptr<float>();
  auto* const out = values.mutable_data_ptr<float>();
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    dequantize_nf4_values(bytes, factors, pairs, first + begin, end - begin, out + begin);
  });
  return type == at::kFloat ? values : values.to(type);
}

}  // namespace finetune::kernels::cpu
