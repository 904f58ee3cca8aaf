// SPDX-License-Identifier: MIT
#include "finetune/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "finetune/base/error.h"

namespace finetune {

AdamW::AdamW(const NamedTensors& parameters, const std::vector<bool>& decays,
             const AdamWOptions& options)
    : options_(options) {
  FT_CHECK(parameters.size() == decays.size(), "one flag a parameter");
  for (const bool group : {true, false}) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (decays[i] != group) continue;
      const Tensor& parameter = parameters[i].tensor;
      slots_.push_back(
          {.name = parameters[i].name,
           .parameter = parameter,
           .decays = group,
           .exp_avg = at::zeros_like(parameter.detach()),
           .exp_avg_sq = at::zeros_like(parameter.detach()),
           .step = at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false))});
    }
  }
}

void AdamW::step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  step_group(true, learning_rate);
  step_group(false, learning_rate);
}

void AdamW::step_group(bool decays, double learning_rate) {
  std::vector<Tensor> parameters, gradients, averages, squares, steps;
  for (Slot& slot : slots_) {
    if (slot.decays != decays || !slot.parameter.grad().defined()) continue;
    slot.step.add_(1);
    parameters.push_back(slot.parameter);
    gradients.push_back(slot.parameter.grad());
    averages.push_back(slot.exp_avg);
    squares.push_back(slot.exp_avg_sq);
    steps.push_back(slot.step);
  }
  if (parameters.empty()) return;
  at::_fused_adamw_(parameters, gradients, averages, squares, {}, steps, learning_rate,
                    options_.beta1, options_.beta2, decays ? options_.weight_decay : 0.0,
                    options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::zero_grad() {
  for (Slot& slot : slots_) slot.parameter.mutable_grad() = Tensor();
}

double clip_grad_norm(const NamedTensors& parameters, double max_norm) {
  const c10::NoGradGuard no_grad;
  std::vector<Tensor> norms;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.grad().defined()) {
      norms.push_back(at::linalg_vector_norm(parameter.tensor.grad()));
    }
  }
  if (norms.empty()) return 0.0;
  const double norm = at::linalg_vector_norm(at::stack(norms)).item<double>();
  const double scale = max_norm / (norm + 1e-6);
  if (max_norm > 0.0 && std::isfinite(norm) && scale < 1.0) {
    for (const NamedTensor& parameter : parameters) {
      if (parameter.tensor.grad().defined()) parameter.tensor.grad().mul_(scale);
    }
  }
  return norm;
}

}  // namespace finetune
