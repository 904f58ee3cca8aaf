// SPDX-License-Identifier: MIT
#include <c10/core/GradMode.h>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "train/optimizer_files.h"

namespace finetune {
namespace {

TorchValue group_to_torch(const AdamW& optimizer, bool decays, double learning_rate,
                          double initial_learning_rate) {
  const AdamWOptions& options = optimizer.options();
  TorchList indices;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    if (optimizer.slots()[i].decays == decays) indices.emplace_back(static_cast<int64_t>(i));
  }
  TorchDict group;
  group.set("weight_decay", decays ? options.weight_decay : 0.0);
  group.set("lr", learning_rate);
  group.set("betas", TorchTuple{{options.beta1, options.beta2}});
  group.set("eps", options.epsilon);
  group.set("amsgrad", false);
  group.set("maximize", false);
  group.set("foreach", TorchValue());
  group.set("capturable", false);
  group.set("differentiable", false);
  group.set("fused", true);
  group.set("decoupled_weight_decay", true);
  group.set("initial_lr", initial_learning_rate);
  group.set("params", std::move(indices));
  return group;
}

// The keys of the parameters' states, in the order of the groups: it is the order, not the number,
// that says whose a state is.
std::vector<int64_t> state_keys(const TorchValue& value, size_t expected,
                                const std::string& where) {
  std::vector<int64_t> keys;
  for (const TorchValue& group : value.at("param_groups").as_sequence()) {
    for (const TorchValue& key : group.at("params").as_sequence()) keys.push_back(key.as_int());
  }
  if (keys.size() != expected) {
    throw Error(ErrorKind::kData, where + ": is the state of " + std::to_string(keys.size()) +
                                      " parameters where the model has " +
                                      std::to_string(expected));
  }
  return keys;
}

void restore_slot(AdamW::Slot& slot, const TorchValue& entry, const std::string& where) {
  for (const char* key : {"step", "exp_avg", "exp_avg_sq"}) {
    if (entry.find(key) == nullptr) {
      throw Error(ErrorKind::kData, where + ": is not AdamW's, '" + std::string(key) + "' of '" +
                                        slot.name + "' is missing");
    }
  }
  const auto restore = [&](const char* key, const Tensor& target) {
    const Tensor& source = entry.at(key).as_tensor();
    if (source.sizes() != target.sizes()) {
      throw Error(ErrorKind::kData, where + ": the shape of '" + key + "' of '" + slot.name +
                                        "' is not the parameter's");
    }
    target.copy_(source);
  };
  const TorchValue& step = entry.at("step");
  if (step.is_tensor()) {
    restore("step", slot.step);
  } else {
    slot.step.fill_(step.as_double());  // torch before 1.12
  }
  restore("exp_avg", slot.exp_avg);
  restore("exp_avg_sq", slot.exp_avg_sq);
}

}  // namespace

TorchValue optimizer_to_torch(const AdamW& optimizer, double learning_rate,
                              double initial_learning_rate) {
  TorchDict state;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    const AdamW::Slot& slot = optimizer.slots()[i];
    // As torch: a parameter that the task does not use (a pooler's) has never got a state.
    if (slot.step.item<float>() == 0.0F) continue;
    TorchDict entry;
    entry.set("step", slot.step);
    entry.set("exp_avg", slot.exp_avg);
    entry.set("exp_avg_sq", slot.exp_avg_sq);
    state.set(static_cast<int64_t>(i), std::move(entry));
  }
  TorchDict root;
  root.set("state", std::move(state));
  root.set("param_groups",
           TorchList{group_to_torch(optimizer, true, learning_rate, initial_learning_rate),
                     group_to_torch(optimizer, false, learning_rate, initial_learning_rate)});
  return root;
}

void optimizer_from_torch(AdamW& optimizer, const TorchValue& value, const std::string& where) {
  const c10::NoGradGuard no_grad;
  const std::vector<int64_t> keys = state_keys(value, optimizer.slots().size(), where);
  const TorchValue& state = value.at("state");
  std::string without_state;
  for (size_t i = 0; i < keys.size(); ++i) {
    AdamW::Slot& slot = optimizer.slots()[i];
    const TorchValue* entry = state.find(keys[i]);
    if (entry == nullptr) {
      without_state += (without_state.empty() ? "" : ", ") + slot.name;
      continue;
    }
    restore_slot(slot, *entry, where);
  }
  if (!without_state.empty()) {
    log::debug(where + ": has no state for " + without_state +
               ", which the task does not use or which starts fresh");
  }
}

}  // namespace finetune
