// SPDX-License-Identifier: MIT
#include "finetune/kernels/formats.h"

#include "finetune/base/error.h"
#include "kernels/kernels.h"

namespace finetune {
namespace {

void check_format(const Tensor& tensor, at::ScalarType type, const Tensor& like) {
  FT_CHECK(tensor.scalar_type() == type && tensor.is_contiguous(), "a contiguous tensor");
  FT_CHECK(tensor.numel() == like.numel() && tensor.device() == like.device(), "of one size");
}

}  // namespace

void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  check_format(target, at::kBFloat16, values);
  check_format(values, at::kFloat, target);
  kernels::kernels_for(values).round_stochastically(target, values, key);
}

void add_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  check_format(target, at::kBFloat16, values);
  check_format(values, at::kFloat, target);
  kernels::kernels_for(values).add_stochastically(target, values, key);
}

void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction) {
  check_format(values, at::kFloat, weight);
  check_format(weight, at::kBFloat16, values);
  check_format(correction, at::kChar, values);
  kernels::kernels_for(values).split_values(values, weight, correction);
}

void join_values(const Tensor& weight, const Tensor& correction, const Tensor& values) {
  check_format(values, at::kFloat, weight);
  check_format(weight, at::kBFloat16, values);
  check_format(correction, at::kChar, values);
  kernels::kernels_for(values).join_values(weight, correction, values);
}

}  // namespace finetune
