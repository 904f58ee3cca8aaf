// SPDX-License-Identifier: MIT
#include "finetune/kernels/formats.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include "finetune/base/error.h"
#include "kernels/formats_cpu.h"
#include "kernels/formats_reference.h"

namespace finetune {
namespace {

constexpr int64_t kGrain = 16384;  // values; every one is a function of its own place

void check(const Tensor& tensor, at::ScalarType type, const Tensor& like) {
  FT_CHECK(tensor.scalar_type() == type && tensor.is_contiguous(), "a contiguous tensor");
  FT_CHECK(tensor.numel() == like.numel() && tensor.device() == like.device(), "of one size");
}

uint16_t* bits_of(const Tensor& tensor) {
  return reinterpret_cast<uint16_t*>(tensor.mutable_data_ptr<at::BFloat16>());
}

}  // namespace

void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  check(target, at::kBFloat16, values);
  check(values, at::kFloat, target);
  if (!values.is_cpu()) {
    kernels::round_stochastically_reference(target, values, key);
    return;
  }
  const float* source = values.const_data_ptr<float>();
  uint16_t* result = bits_of(target);
  at::parallel_for(0, values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::round_stochastically(source + begin, result + begin, end - begin, key.key,
                                  key.first_element + static_cast<uint64_t>(begin));
  });
}

void add_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  check(target, at::kBFloat16, values);
  check(values, at::kFloat, target);
  if (!values.is_cpu()) {
    const Tensor sum = target.to(at::kFloat) + values.view(target.sizes());
    kernels::round_stochastically_reference(target, sum, key);
    return;
  }
  const float* source = values.const_data_ptr<float>();
  uint16_t* result = bits_of(target);
  at::parallel_for(0, values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::add_stochastically(source + begin, result + begin, end - begin, key.key,
                                key.first_element + static_cast<uint64_t>(begin));
  });
}

void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction) {
  check(values, at::kFloat, weight);
  check(weight, at::kBFloat16, values);
  check(correction, at::kChar, values);
  if (!values.is_cpu()) {
    kernels::split_values_reference(values, weight, correction);
    return;
  }
  const float* source = values.const_data_ptr<float>();
  uint16_t* rounded = bits_of(weight);
  int8_t* rest = correction.mutable_data_ptr<int8_t>();
  at::parallel_for(0, values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::split_values(source + begin, rounded + begin, rest + begin, end - begin);
  });
}

void join_values(const Tensor& weight, const Tensor& correction, const Tensor& values) {
  check(values, at::kFloat, weight);
  check(weight, at::kBFloat16, values);
  check(correction, at::kChar, values);
  if (!values.is_cpu()) {
    kernels::join_values_reference(weight, correction, values);
    return;
  }
  const auto* rounded = reinterpret_cast<const uint16_t*>(weight.const_data_ptr<at::BFloat16>());
  const int8_t* rest = correction.const_data_ptr<int8_t>();
  float* result = values.mutable_data_ptr<float>();
  at::parallel_for(0, values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernels::join_values(rounded + begin, rest + begin, result + begin, end - begin);
  });
}

}  // namespace finetune
