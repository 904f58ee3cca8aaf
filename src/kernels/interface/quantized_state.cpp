// SPDX-License-Identifier: MIT
#include "finetune/kernels/quantized_state.h"

#include <ATen/ops/tensor.h>

#include <cmath>

#include "finetune/base/error.h"
#include "kernels/interface/dynamic_map.h"
#include "kernels/interface/kernels.h"

namespace finetune {
namespace {

using kernels::AdamWNumbers;
using kernels::BitsAndBytesNumbers;
using kernels::kernels_for;

// Computes in float32 from the arguments on, as bitsandbytes does: 1 - 0.999 is 0.00100004673
// there.
BitsAndBytesNumbers as_bitsandbytes(const AdamWUpdate& update) {
  const auto beta1 = static_cast<float>(update.beta1);
  const auto beta2 = static_cast<float>(update.beta2);
  const auto power = [&](float beta) {
    return static_cast<float>(std::pow(static_cast<double>(beta), update.updates));
  };
  const float correction1 = 1.0F - power(beta1);
  const float correction2 = std::sqrt(1.0F - power(beta2));
  const auto rate = static_cast<float>(update.learning_rate);
  return {.beta1 = beta1,
          .beta2 = beta2,
          .gradient1 = 1.0F - beta1,
          .gradient2 = 1.0F - beta2,
          .step_size = -rate * correction2 / correction1,
          .epsilon = correction2 * static_cast<float>(update.epsilon),
          .decay = 1.0F - rate * static_cast<float>(update.weight_decay)};
}

AdamWNumbers as_torch(const AdamWUpdate& update) {
  const auto steps = static_cast<double>(update.updates);
  const double correction1 = 1.0 - std::pow(update.beta1, steps);
  const double correction2 = 1.0 - std::pow(update.beta2, steps);
  return {.gradient1 = static_cast<float>(1.0 - update.beta1),
          .beta2 = static_cast<float>(update.beta2),
          .gradient2 = static_cast<float>(1.0 - update.beta2),
          .step_size = static_cast<float>(-update.learning_rate / correction1),
          .correction = static_cast<float>(1.0 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(update.epsilon),
          .decay = static_cast<float>(1.0 - update.learning_rate * update.weight_decay)};
}

bool is_whole(const Tensor& tensor, int64_t count, const ParameterTensors& parameter) {
  return tensor.is_contiguous() && tensor.numel() == count &&
         tensor.device() == parameter.weight.device();
}

void check_state(const ParameterTensors& parameter, const Tensor& codes1, const Tensor& codes2,
                 const Tensor& scales1, const Tensor& scales2, int64_t block) {
  const int64_t count = parameter.weight.numel();
  const int64_t blocks = (count + block - 1) / block;
  FT_CHECK(is_whole(codes1, count, parameter) && is_whole(codes2, count, parameter) &&
               is_whole(scales1, blocks, parameter) && is_whole(scales2, blocks, parameter),
           "a state of the parameter's size");
}

}  // namespace

Tensor dynamic_map(bool is_signed) {
  const auto& values = (is_signed ? kernels::signed_map() : kernels::unsigned_map()).values;
  return at::tensor(at::ArrayRef<float>(values.data(), values.size()), at::kFloat);
}

void update_adamw(const ParameterTensors& parameter, const DynamicState& state,
                  const AdamWUpdate& update) {
  check_state(parameter, state.state1, state.state2, state.absmax1, state.absmax2, kDynamicBlock);
  kernels_for(parameter.weight).update_dynamic(parameter, state, update, as_bitsandbytes(update));
}

void update_adamw(const ParameterTensors& parameter, const WideState& state,
                  const AdamWUpdate& update) {
  const int64_t count = parameter.weight.numel();
  FT_CHECK(is_whole(state.state1, count, parameter) && is_whole(state.state2, count, parameter),
           "a state of the parameter's size");
  kernels_for(parameter.weight).update_wide(parameter, state, update, as_bitsandbytes(update));
}

void update_adamw(const ParameterTensors& parameter, const CompandedState& state,
                  const AdamWUpdate& update) {
  check_state(parameter, state.exp_avg, state.exp_avg_sq, state.exp_avg_scale,
              state.exp_avg_sq_scale, kCompandedGroup);
  kernels_for(parameter.weight).update_companded(parameter, state, update, as_torch(update));
}

bool update_adamw_together(const std::vector<AdamWStep>& steps) {
  if (steps.empty()) return true;
  std::vector<kernels::AdamWJob> jobs;
  jobs.reserve(steps.size());
  for (const AdamWStep& step : steps) {
    jobs.push_back({.parameter = step.parameter,
                    .state = step.state,
                    .factor = step.update.factor,
                    .rounding_key = step.update.rounding_key,
                    .theirs = as_bitsandbytes(step.update),
                    .ours = as_torch(step.update)});
  }
  return kernels_for(steps.front().parameter->weight).update_together(jobs);
}

void encode(const Tensor& exp_avg, const Tensor& exp_avg_sq, const DynamicState& state) {
  kernels_for(exp_avg).encode_dynamic(exp_avg, exp_avg_sq, state);
}

void decode(const DynamicState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq) {
  kernels_for(exp_avg).decode_dynamic(state, exp_avg, exp_avg_sq);
}

void encode(const Tensor& exp_avg, const Tensor& exp_avg_sq, const CompandedState& state) {
  kernels_for(exp_avg).encode_companded(exp_avg, exp_avg_sq, state);
}

void decode(const CompandedState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq) {
  kernels_for(exp_avg).decode_companded(state, exp_avg, exp_avg_sq);
}

}  // namespace finetune
