// SPDX-License-Identifier: MIT
#include "finetune/params/factors.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/kernels/format_lists.h"

namespace finetune {

Factors::Factors(const std::vector<Parameter>& parameters, ParameterExchange* const& exchange,
                 bool runs_ahead)
    : parameters_(parameters),
      exchange_(exchange),
      runs_ahead_(runs_ahead),
      factors_(parameters.size()),
      vectors_(parameters.size()) {}

Tensor Factors::values(const Parameter& parameter) const {
  const ParameterTensors stored = whole_of(parameter, exchange_);
  if (parameter.format.weight == WeightFormat::kFloat32) return stored.weight.detach();
  const WeightFormatTraits& format = traits_of(parameter.format.weight);
  const int64_t rows = parameter.handle.size(0);
  if (!holds_ || parameter.handle.dim() != 1 || parameter.is_divided()) {
    return format.rows(stored, parameter.handle.sizes(), 0, rows);
  }
  const size_t index = parameter.handle.id();
  Tensor& held = vectors_[index];
  if (!held.defined()) {
    held = format.rows(parameter, parameter.handle.sizes(), 0, rows);
    wanted_vectors_.push_back(index);
  }
  return held;
}

Tensor Factors::factor(const Parameter& parameter, Precision precision) {
  if (!runs_ahead_ || precision == Precision::kFloat32) return values(parameter);
  const at::ScalarType type = scalar_type(precision);
  const ParameterTensors stored = whole_of(parameter, exchange_);
  const Tensor& weight = stored.weight;
  const WeightFormatTraits& format = traits_of(parameter.format.weight);
  if (format.unpack != nullptr) return format.unpack(stored, parameter.handle.sizes(), type);
  if (weight.scalar_type() == type) return weight.detach();  // with a correction too: the nearest
  // What is kept of a divided parameter would be a whole copy.
  if (!holds_ || parameter.is_divided()) return values(parameter).to(type);
  const size_t index = parameter.handle.id();
  Tensor& held = factors_[index];
  if (held.defined() && held.scalar_type() == type) return held;
  held = values(parameter).to(type);
  factor_type_ = type;
  if (std::ranges::find(wanted_factors_, index) == wanted_factors_.end()) {
    wanted_factors_.push_back(index);
  }
  return held;
}

Tensor Factors::derived(const Parameter& parameter, const std::function<Tensor()>& compute,
                        int part) {
  if (!holds_derived_) return compute();
  const std::lock_guard lock(mutex_);
  Tensor& held = derived_[{parameter.handle.id(), part}];
  if (!held.defined()) held = compute();
  return held;
}

void Factors::hold() {
  release();
  holds_derived_ = true;
  if (!runs_ahead_) return;
  holds_ = true;
  std::vector<Tensor> from;
  std::vector<Tensor> to;
  for (const size_t index : wanted_factors_) {
    const Tensor weight = parameters_[index].weight.detach();
    if (weight.scalar_type() != at::kFloat) continue;  // unpacked one by one
    factors_[index] = at::empty_like(weight, factor_type_);
    from.push_back(weight);
    to.push_back(factors_[index]);
  }
  const c10::NoGradGuard no_grad;
  if (!from.empty()) at::_foreach_copy_(to, from);
  hold_vectors();
}

// They share one tensor.
void Factors::hold_vectors() {
  constexpr int64_t kAlignment = 128;  // values
  int64_t count = 0;
  for (const size_t index : wanted_vectors_) {
    count += (parameters_[index].weight.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (count == 0) return;
  const auto options = parameters_[wanted_vectors_.front()].weight.options();
  const Tensor memory = at::empty({count}, options.dtype(at::kFloat).requires_grad(false));
  std::vector<kernels::SplitTensor> split;
  std::vector<Tensor> from;  // bfloat16 alone
  std::vector<Tensor> to;
  int64_t first = 0;
  for (const size_t index : wanted_vectors_) {
    const Parameter& parameter = parameters_[index];
    const Tensor weight = parameter.weight.detach();
    vectors_[index] = memory.narrow(0, first, weight.numel());
    first += (weight.numel() + kAlignment - 1) / kAlignment * kAlignment;
    if (parameter.correction.defined()) {
      split.push_back({weight, parameter.correction, vectors_[index]});
    } else {
      from.push_back(weight);
      to.push_back(vectors_[index]);
    }
  }
  if (!from.empty()) at::_foreach_copy_(to, from);
  kernels::join_all_values(split);
}

void Factors::release() {
  holds_derived_ = false;
  derived_.clear();
  if (!holds_) return;
  holds_ = false;
  std::ranges::fill(factors_, Tensor());
  std::ranges::fill(vectors_, Tensor());
}

}  // namespace finetune
