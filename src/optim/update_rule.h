// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/kernels/kernels_in_use.h"
#include "finetune/kernels/parameter_chunks.h"
#include "finetune/kernels/quantized_state.h"
#include "finetune/optim/optimizer_kind.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {

// OptimizerKind::make for a class of rules.
template <class Rule>
std::unique_ptr<UpdateRule> make_rule(const OptimizerOptions& options) {
  return std::make_unique<Rule>(options);
}

inline AdamWUpdate make_update(const OptimizerOptions& options, const ParameterUpdate& update) {
  return {.learning_rate = update.learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay,
          .updates = update.slot.updates,
          .factor = update.factor,
          .rounding_key = update.rounding_key};
}

// Updates all parameters in a few launches if the device has a kernel for lists; `state_of` returns
// the state of a slot. Returns false without doing anything otherwise.
template <class StateOf>
bool update_together(const OptimizerOptions& options, const std::vector<ParameterUpdate>& updates,
                     const StateOf& state_of) {
  if (updates.empty() || !is_asynchronous(updates.front().parameter.weight.device())) return false;
  std::vector<AdamWStep> steps;
  steps.reserve(updates.size());
  for (const ParameterUpdate& u : updates) {
    steps.push_back({&u.parameter, state_of(u.slot), make_update(options, u)});
  }
  return update_adamw_together(steps);
}

}  // namespace finetune
