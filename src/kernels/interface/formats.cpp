// SPDX-License-Identifier: MIT
#include "finetune/kernels/formats.h"

#include "finetune/base/error.h"
#include "kernels/interface/kernels.h"

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
  kernels::kernels_for(values).add_all_stochastically({{target, values, key}});
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
  kernels::kernels_for(values).join_all_values({{weight, correction, values}});
}

namespace kernels {

void add_all_stochastically(const std::vector<RoundedSum>& sums) {
  for (const RoundedSum& one : sums) {
    check_format(one.target, at::kBFloat16, one.values);
    check_format(one.values, at::kFloat, one.target);
  }
  if (!sums.empty()) kernels_for(sums.front().values).add_all_stochastically(sums);
}

void join_all_values(const std::vector<SplitTensor>& list) {
  for (const SplitTensor& one : list) {
    check_format(one.values, at::kFloat, one.weight);
    check_format(one.weight, at::kBFloat16, one.values);
    check_format(one.correction, at::kChar, one.values);
  }
  if (!list.empty()) kernels_for(list.front().values).join_all_values(list);
}

Tensor joined_rows(const Tensor& weight, const Tensor& correction, const Tensor& indices) {
  check_format(weight, at::kBFloat16, correction);
  check_format(correction, at::kChar, weight);
  FT_CHECK(weight.dim() == 2 && indices.scalar_type() == at::kLong, "rows of a matrix");
  return kernels_for(weight).joined_rows(weight, correction, indices);
}

}  // namespace kernels

}  // namespace finetune
