// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/formats.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::cpu {
namespace {

constexpr int64_t kFormatGrain = 16384;  // values per thread; results do not depend on the division

uint16_t* bits_of(const Tensor& tensor) {
  return reinterpret_cast<uint16_t*>(tensor.mutable_data_ptr<at::BFloat16>());
}

}  // namespace

void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  const float* source = values.const_data_ptr<float>();
  uint16_t* result = bits_of(target);
  at::parallel_for(0, values.numel(), kFormatGrain, [&](int64_t begin, int64_t end) {
    kernels::round_stochastically(source + begin, result + begin, end - begin, key.key,
                                  key.first_element + static_cast<uint64_t>(begin));
  });
}

void add_all_stochastically(const std::vector<RoundedSum>& sums) {
  for (const RoundedSum& sum : sums) {
    const float* source = sum.values.const_data_ptr<float>();
    uint16_t* result = bits_of(sum.target);
    at::parallel_for(0, sum.values.numel(), kFormatGrain, [&](int64_t begin, int64_t end) {
      kernels::add_stochastically(source + begin, result + begin, end - begin, sum.key.key,
                                  sum.key.first_element + static_cast<uint64_t>(begin));
    });
  }
}

void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction) {
  const float* source = values.const_data_ptr<float>();
  uint16_t* rounded = bits_of(weight);
  int8_t* rest = correction.mutable_data_ptr<int8_t>();
  at::parallel_for(0, values.numel(), kFormatGrain, [&](int64_t begin, int64_t end) {
    kernels::split_values(source + begin, rounded + begin, rest + begin, end - begin);
  });
}

void join_all_values(const std::vector<SplitTensor>& list) {
  for (const auto& [weight, correction, values] : list) {
    const auto* rounded = reinterpret_cast<const uint16_t*>(weight.const_data_ptr<at::BFloat16>());
    const int8_t* rest = correction.const_data_ptr<int8_t>();
    float* result = values.mutable_data_ptr<float>();
    at::parallel_for(0, values.numel(), kFormatGrain, [&](int64_t begin, int64_t end) {
      kernels::join_values(rounded + begin, rest + begin, result + begin, end - begin);
    });
  }
}

Tensor joined_rows(const Tensor& weight, const Tensor& correction, const Tensor& indices) {
  return plain::joined_rows(weight, correction, indices);
}

}  // namespace finetune::kernels::cpu
