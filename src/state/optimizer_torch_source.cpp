// SPDX-License-Identifier: MIT
// Reads optimizer.pt. A state belongs to a parameter by the order of the keys in the groups, not by
// the key's number.
#include <ATen/ops/allclose.h>

#include <algorithm>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/tensor/torch_file.h"
#include "state/optimizer_source.h"

namespace finetune {
namespace {

// The nested dictionary in which bitsandbytes since 0.49 hides its tensors from FSDP.
constexpr char kQuantizedState[] = "__bnb_optimizer_quant_state__";

const TorchValue* find_state(const TorchValue& entry, const char* name) {
  if (const TorchValue* found = entry.find(name)) return found;
  const TorchValue* inner = entry.find(kQuantizedState);
  return inner == nullptr ? nullptr : inner->find(name);
}

bool has_group_keys(const OptimizerKind& kind, const TorchValue& group) {
  const std::vector<std::string>& keys = kind.torch.group_keys;
  return !keys.empty() && std::ranges::all_of(keys, [&](const std::string& key) {
    return group.find(key) != nullptr;
  });
}

bool has_state_key(const OptimizerKind& kind, const TorchValue& entry) {
  return std::ranges::any_of(kind.torch.state_keys, [&](const std::string& key) {
    return find_state(entry, key.c_str()) != nullptr;
  });
}

const OptimizerKind& kind_of_file(const TorchValue& root) {
  for (const TorchValue& group : root.at("param_groups").as_sequence()) {
    for (const OptimizerKind& kind : optimizers()) {
      if (has_group_keys(kind, group)) return kind;
    }
  }
  for (const auto& [key, entry] : root.at("state").as_dict().items) {
    for (const OptimizerKind& kind : optimizers()) {
      if (has_state_key(kind, entry)) return kind;
    }
  }
  return optimizers().front();
}

std::string counts_text(const std::vector<size_t>& counts) {
  return join(std::vector<int64_t>(counts.begin(), counts.end()), " and ");
}

// Returns the key of each slot's state.
std::vector<int64_t> state_keys(const TorchValue& root, const Optimizer& optimizer,
                                const std::string& path) {
  std::vector<int64_t> keys;
  std::vector<size_t> counts;
  for (const TorchValue& group : root.at("param_groups").as_sequence()) {
    const std::vector<TorchValue>& of_group = group.at("params").as_sequence();
    for (const TorchValue& key : of_group) keys.push_back(key.as_int());
    counts.push_back(of_group.size());
  }
  const std::vector<Optimizer::Slot>& slots = optimizer.slots();
  if (keys.size() != slots.size()) {
    throw Error(ErrorKind::kData,
                format_text("{}: is the state of {} parameters where the model has {}", path,
                            keys.size(), slots.size()));
  }
  std::vector<size_t> expected;
  for (const ParameterGroup& group : optimizer.groups()) {
    expected.push_back(group.parameters.size());
  }
  if (counts != expected) {
    throw Error(ErrorKind::kData,
                path + ": has groups of " + counts_text(counts) +
                    " parameters where the model has " + counts_text(expected) +
                    ", with and without weight decay; another program grouped them");
  }
  const std::set<int64_t> known(keys.begin(), keys.end());
  if (known.size() != keys.size()) {
    throw Error(ErrorKind::kData, path + ": one parameter is in its groups twice");
  }
  for (const auto& [key, entry] : root.at("state").as_dict().items) {
    const auto* number = std::get_if<int64_t>(&key);
    if (number == nullptr || known.count(*number) == 0) {
      throw Error(ErrorKind::kData, path + ": has a state of a parameter that no group has");
    }
    (void)find_state(entry, "step");  // throws unless it is a dictionary
    if (const TorchValue* inner = entry.find(kQuantizedState)) (void)inner->as_dict();
  }
  return keys;
}

const StoredTensor* find_tensor(const TorchValue& entry, const char* name) {
  const TorchValue* found = find_state(entry, name);
  return found != nullptr && found->is_stored_tensor() ? &found->as_stored_tensor() : nullptr;
}

class TorchSource final : public OptimizerSource {
 public:
  TorchSource(const std::string& path, TorchValue root, const Optimizer& optimizer)
      : OptimizerSource(path, optimizer), root_(std::move(root)), kind_(kind_of_file(root_)) {
    const TorchValue& state = root_.at("state");
    for (const int64_t key : state_keys(root_, optimizer, path))
      entries_.push_back(state.find(key));
  }

  [[nodiscard]] const OptimizerKind& kind(size_t /*slot*/) const override { return kind_; }

  [[nodiscard]] Description describe(size_t slot) const override {
    if (entries_[slot] == nullptr) return {};
    Description description{.has_state = true, .is_8bit = false, .updates = updates(slot)};
    if (kind_.is_8bit) {
      const std::string first = tensors(slot, false).front().name;
      description.is_8bit = !at::isFloatingType(tensor(slot, first).scalar_type());
    }
    return description;
  }

  void read(size_t slot, Optimizer::Slot& target) const override {
    const TorchValue& entry = *entries_[slot];
    if (!kind_.torch.counts_updates && !has_state_tensor(slot)) {
      target.state.clear();  // sgd without momentum: its state is created by the next update
      return;
    }
    for (const auto& [state, reason] : kind_.torch.refused_states) {
      if (find_state(entry, state.c_str()) != nullptr) reject(slot, state, reason);
    }
    for (const StateTensor& state : tensors(slot, target.is_8bit)) {
      if (state.is_optional && find_tensor(entry, state.name.c_str()) == nullptr) continue;
      read_tensor(slot, state, target.at(state.name));
    }
  }

 private:
  [[nodiscard]] bool has_state_tensor(size_t slot) const {
    return std::ranges::any_of(kind_.torch.state_keys, [&](const std::string& key) {
      return find_tensor(*entries_[slot], key.c_str()) != nullptr;
    });
  }

  [[noreturn]] void reject_missing(size_t slot, const std::string& state) const {
    reject(slot, state, "is missing: the file is not that of the optimizer '" + kind_.name + "'");
  }

  [[nodiscard]] const StoredTensor& tensor(size_t slot, const std::string& state) const {
    const StoredTensor* found = find_tensor(*entries_[slot], state.c_str());
    if (found == nullptr) reject_missing(slot, state);
    return *found;
  }

  // Accepts a number, or since torch 1.12 a tensor of one; torch's SGD has no step.
  [[nodiscard]] int64_t updates(size_t slot) const {
    const TorchValue* step = find_state(*entries_[slot], "step");
    if (step == nullptr && !kind_.torch.counts_updates) {
      return has_state_tensor(slot) ? 1 : 0;
    }
    if (step == nullptr) reject_missing(slot, "step");
    if (step->is_int() || step->is_double()) return checked_updates(slot, step->as_double());
    const StoredTensor& stored = tensor(slot, "step");
    if (!stored.sizes().empty() && stored.sizes() != std::vector<int64_t>{1}) {
      reject(slot, "step", "is not a number");
    }
    return checked_updates(slot, stored.read().item<double>());
  }

  void read_tensor(size_t slot, const StateTensor& state, const Tensor& target) const {
    const StoredTensor& stored = tensor(slot, state.name);
    if (at::IntArrayRef(stored.sizes()) != target.sizes()) {
      reject(slot, state.name, "has another shape than the model gives it");
    }
    const bool converts = at::isFloatingType(stored.scalar_type()) && target.is_floating_point();
    if (!converts && stored.scalar_type() != target.scalar_type()) {
      reject(slot, state.name, "has another type than its optimizer gives it");
    }
    if (state.table.defined()) {
      check_table(slot, state, stored.read());
      return;
    }
    stored.read_into(target);
    check_values(slot, state, target);
  }

  // All tensors share one table; with another one the codes would have other meanings.
  void check_table(size_t slot, const StateTensor& state, const Tensor& theirs) const {
    if (!at::allclose(theirs.to(at::kFloat), state.table, 1e-6, 1e-9)) {
      reject(slot, state.name, "is not bitsandbytes' dynamic map");
    }
  }

  TorchValue root_;
  const OptimizerKind& kind_;
  std::vector<const TorchValue*> entries_;  // by slot; null: never updated
};

}  // namespace

std::unique_ptr<OptimizerSource> open_optimizer_torch(FileSystem& files, const std::string& path,
                                                      const Optimizer& optimizer) {
  TorchValue root = open_torch_file(files, path);
  try {
    return std::make_unique<TorchSource>(path, std::move(root), optimizer);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(path)) throw;
    throw Error(ErrorKind::kData, path + ": is no optimizer's state: " + error.what());
  }
}

}  // namespace finetune
