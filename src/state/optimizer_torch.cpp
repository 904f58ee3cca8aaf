// SPDX-License-Identifier: MIT
#include "finetune/state/optimizer_torch.h"

#include <ATen/ops/full.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/model_files.h"

namespace finetune {
namespace {

TorchValue group_to_torch(const Optimizer& optimizer, size_t index, const OptimizerRates& rates) {
  const ParameterGroup& of_group = optimizer.groups()[index];
  TorchDict group;
  group.set("weight_decay", of_group.options.weight_decay);
  group.set("lr", rates.learning_rate * of_group.learning_rate_factor);
  optimizer.only_kind()->torch.add_options(group, of_group.options);
  group.set("initial_lr", rates.initial_learning_rate * of_group.learning_rate_factor);
  TorchList indices;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    if (optimizer.slots()[i].group == index) indices.emplace_back(static_cast<int64_t>(i));
  }
  group.set("params", std::move(indices));
  return group;
}

TorchValue slot_to_torch(const Optimizer& optimizer, size_t index, Snapshot* snapshot,
                         StateGather* gather) {
  const Optimizer::Slot& slot = optimizer.slots()[index];
  TorchDict entry;
  // torch's SGD has no step and ignores unknown keys.
  if (optimizer.kind_of(slot).torch.step_is_tensor) {
    entry.set("step", at::full({}, static_cast<double>(slot.updates), at::kFloat));
  } else {
    entry.set("step", slot.updates);
  }
  // bitsandbytes since 0.49 writes these in a nested dictionary and reads both forms; older
  // versions read only this one.
  const bool is_here =
      !slot.is_elsewhere && !optimizer.parameters().parameters()[slot.parameter].is_divided();
  if (snapshot == nullptr && is_here) {
    for (const auto& [name, values] : slot.state) {
      if (values.defined()) entry.set(name, values);
    }
    return entry;
  }
  for (LazyTensor& values : state_tensors(optimizer, index, snapshot, gather)) {
    const std::string name = values.name;
    entry.set(name, std::move(values));
  }
  return entry;
}

}  // namespace

bool transformers_reads_states(const Optimizer& optimizer) {
  const OptimizerKind* kind = optimizer.only_kind();
  if (kind == nullptr || kind->torch.add_options == nullptr) return false;
  // transformers numbers the matrices of all experts of a layer as one parameter.
  const auto& parameters = optimizer.parameters().parameters();
  return std::ranges::none_of(optimizer.slots(), [&](const Optimizer::Slot& slot) {
    return is_of_one_expert(parameters[slot.parameter].name());
  });
}

TorchValue optimizer_to_torch(const Optimizer& optimizer, const OptimizerRates& rates,
                              Snapshot* snapshot, StateGather* gather) {
  FT_CHECK(transformers_reads_states(optimizer), "optimizer.pt has no place for these states");
  TorchDict state;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const Optimizer::Slot& slot = optimizer.slots()[i];
    // As in torch: a parameter that the task does not use (a pooler's) never gets a state.
    if (slot.updates == 0) continue;
    state.set(static_cast<int64_t>(i), slot_to_torch(optimizer, i, snapshot, gather));
  }
  TorchDict root;
  root.set("state", std::move(state));
  TorchList groups;
  for (size_t g = 0; g < optimizer.groups().size(); ++g) {
    groups.emplace_back(group_to_torch(optimizer, g, rates));
  }
  root.set("param_groups", std::move(groups));
  return root;
}

}  // namespace finetune
