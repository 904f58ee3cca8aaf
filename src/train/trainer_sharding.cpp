// SPDX-License-Identifier: MIT
// Optimizer states that processes divide among themselves (zero_stage: 1).
#include <ATen/core/Tensor.h>

#include "finetune/state/finite_state.h"
#include "train/clock.h"
#include "train/trainer.h"

namespace finetune {

void Trainer::divide_states() {
  World& world = *parts_.world;
  if (args_.zero_stage == 0 || world.size() == 1) return;
  const std::vector<Parameter>& parameters = parts_.model->store().parameters();
  std::vector<int64_t> bytes(parameters.size());
  for (const Optimizer::Slot& slot : parts_.optimizer->slots()) {
    Optimizer::Slot fresh = slot;
    parts_.optimizer->create_state(fresh);
    bytes[slot.parameter] = static_cast<int64_t>(parameters[slot.parameter].weight.nbytes());
    for (const auto& [name, values] : fresh.state) {
      bytes[slot.parameter] += static_cast<int64_t>(values.nbytes());
    }
  }
  const std::vector<int64_t> owners = balanced_owners(bytes, world.size());
  for (Optimizer::Slot& slot : parts_.optimizer->slots()) {
    slot.is_elsewhere = owners[slot.parameter] != world.rank();
  }
  std::vector<Tensor> weights;
  std::vector<int64_t> owners_of_weights;
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (const Tensor& part : {parameters[i].weight, parameters[i].correction}) {
      if (!part.defined()) continue;
      weights.push_back(part);
      owners_of_weights.push_back(owners[i]);
    }
  }
  owned_weights_ = std::make_unique<OwnedTensors>(world, std::move(weights),
                                                  std::move(owners_of_weights), bucket_bytes());
  state_gather_ = std::make_unique<StateGather>(world, *parts_.optimizer, owners);
}

void Trainer::serve_save() {
  if (!state_gather_) return;
  const double start = now_seconds();
  state_gather_->serve([this] { return !saver_->is_busy(); });
  if (!parts_.world->is_first()) return;
  saver_->add_stall(now_seconds() - start);
  collect_save();
}

std::string Trainer::nonfinite_state() {
  std::string found = nonfinite_part(*parts_.optimizer);
  if (!state_gather_) return found;
  for (const std::string& of_process : parts_.world->gather(found)) {
    if (!of_process.empty()) return of_process;
  }
  return "";
}

}  // namespace finetune
