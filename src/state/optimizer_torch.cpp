// SPDX-License-Identifier: MIT
#include "finetune/state/optimizer_torch.h"

#include <ATen/ops/full.h>

#include "finetune/base/error.h"

namespace finetune {
namespace {

TorchValue betas(const OptimizerOptions& options) {
  return TorchTuple{{options.beta1, options.beta2}};
}

void add_adamw_options(TorchDict& group, const OptimizerOptions& options) {
  group.set("betas", betas(options));
  group.set("eps", options.epsilon);
  group.set("amsgrad", false);
  group.set("maximize", false);
  group.set("foreach", TorchValue());
  group.set("capturable", false);
  group.set("differentiable", false);
  group.set("fused", true);
  group.set("decoupled_weight_decay", true);
}

void add_bitsandbytes_options(TorchDict& group, const OptimizerOptions& options) {
  group.set("betas", betas(options));
  group.set("eps", options.epsilon);
  group.set("alpha", 0.0);
  group.set("t_alpha", TorchValue());
  group.set("t_beta3", TorchValue());
}

// transformers' defaults, with the two that its Trainer sets.
void add_adafactor_options(TorchDict& group) {
  group.set("eps", TorchTuple{{1e-30, 1e-3}});
  group.set("clip_threshold", 1.0);
  group.set("decay_rate", -0.8);
  group.set("beta1", TorchValue());
  group.set("scale_parameter", false);
  group.set("relative_step", false);
  group.set("warmup_init", false);
}

void add_sgd_options(TorchDict& group, const OptimizerOptions& options) {
  group.set("momentum", options.momentum);
  group.set("dampening", 0);
  group.set("nesterov", options.nesterov);
  group.set("maximize", false);
  group.set("foreach", TorchValue());
  group.set("differentiable", false);
  group.set("fused", TorchValue());
}

TorchValue group_to_torch(const Optimizer& optimizer, bool decays, const OptimizerRates& rates) {
  const OptimizerOptions& options = optimizer.options();
  TorchDict group;
  group.set("weight_decay", decays ? options.weight_decay : 0.0);
  group.set("lr", rates.learning_rate);
  if (options.kind == "adamw") add_adamw_options(group, options);
  if (options.kind == "adamw_8bit") add_bitsandbytes_options(group, options);
  if (options.kind == "adafactor") add_adafactor_options(group);
  if (options.kind == "sgd") add_sgd_options(group, options);
  group.set("initial_lr", rates.initial_learning_rate);
  TorchList indices;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    if (optimizer.slots()[i].decays == decays) indices.emplace_back(static_cast<int64_t>(i));
  }
  group.set("params", std::move(indices));
  return group;
}

TorchValue slot_to_torch(const Optimizer& optimizer, size_t index, Snapshot* snapshot,
                         StateGather* gather) {
  const std::string& kind = optimizer.options().kind;
  const Optimizer::Slot& slot = optimizer.slots()[index];
  TorchDict entry;
  // torch's SGD counts nothing and passes over what it does not know.
  if (kind == "adamw") {
    entry.set("step", at::full({}, static_cast<double>(slot.updates), at::kFloat));
  } else {
    entry.set("step", slot.updates);
  }
  // bitsandbytes since 0.49 writes these one dictionary deeper and reads both; older ones read
  // this.
  if (snapshot == nullptr && !slot.is_elsewhere) {
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

TorchValue optimizer_to_torch(const Optimizer& optimizer, const OptimizerRates& rates,
                              Snapshot* snapshot, StateGather* gather) {
  const std::string& kind = optimizer.options().kind;
  FT_CHECK(kind != "adamw_companded_8bit", "optimizer.pt has no place for these states");
  TorchDict state;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const Optimizer::Slot& slot = optimizer.slots()[i];
    // As torch: a parameter that the task does not use (a pooler's) has never got a state.
    if (slot.updates == 0) continue;
    state.set(static_cast<int64_t>(i), slot_to_torch(optimizer, i, snapshot, gather));
  }
  TorchDict root;
  root.set("state", std::move(state));
  root.set("param_groups", TorchList{group_to_torch(optimizer, true, rates),
                                     group_to_torch(optimizer, false, rates)});
  return root;
}

}  // namespace finetune
