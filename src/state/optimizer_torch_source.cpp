// SPDX-License-Identifier: MIT
// Reading optimizer.pt. It is the order of the keys in the groups, not the number, that says whose
// a state is.
#include <ATen/ops/allclose.h>

#include <algorithm>
#include <set>

#include "finetune/base/error.h"
#include "finetune/tensor/torch_file.h"
#include "state/optimizer_source.h"

namespace finetune {
namespace {

// Where bitsandbytes since 0.49 hides its tensors from FSDP.
constexpr char kQuantizedState[] = "__bnb_optimizer_quant_state__";

const TorchValue* find_state(const TorchValue& entry, const char* name) {
  if (const TorchValue* found = entry.find(name)) return found;
  const TorchValue* inner = entry.find(kQuantizedState);
  return inner == nullptr ? nullptr : inner->find(name);
}

std::string kind_of(const TorchValue& root) {
  for (const TorchValue& group : root.at("param_groups").as_sequence()) {
    if (group.find("scale_parameter") != nullptr) return "adafactor";
    if (group.find("momentum") != nullptr && group.find("nesterov") != nullptr) return "sgd";
  }
  for (const auto& [key, entry] : root.at("state").as_dict().items) {
    if (find_state(entry, "state1") != nullptr) return "adamw_8bit";
    if (find_state(entry, "momentum_buffer") != nullptr) return "sgd";
    if (find_state(entry, "exp_avg_sq_row") != nullptr) return "adafactor";
  }
  return "adamw";
}

std::string counts_text(const std::vector<size_t>& counts) {
  std::string text;
  for (const size_t count : counts) text += (text.empty() ? "" : " and ") + std::to_string(count);
  return text;
}

// The keys of the slots' states.
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
    throw Error(ErrorKind::kData, path + ": is the state of " + std::to_string(keys.size()) +
                                      " parameters where the model has " +
                                      std::to_string(slots.size()));
  }
  const auto decaying = static_cast<size_t>(std::count_if(
      slots.begin(), slots.end(), [](const Optimizer::Slot& slot) { return slot.decays; }));
  const std::vector<size_t> expected = {decaying, slots.size() - decaying};
  if (counts != expected) {
    throw Error(ErrorKind::kData,
                path + ": has groups of " + counts_text(counts) +
                    " parameters where the model has " + counts_text(expected) +
                    ", with and without weight decay; another program grouped them");
  }
  const std::set<int64_t> known(keys.begin(), keys.end());
  if (known.size() != keys.size()) {
    throw Error(ErrorKind::kData, path + ": one parameter stands in its groups twice");
  }
  for (const auto& [key, entry] : root.at("state").as_dict().items) {
    const auto* number = std::get_if<int64_t>(&key);
    if (number == nullptr || known.count(*number) == 0) {
      throw Error(ErrorKind::kData, path + ": has a state of a parameter that no group has");
    }
    (void)find_state(entry, "step");  // is a dictionary
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
      : OptimizerSource(path, kind_of(root)), root_(std::move(root)), optimizer_(optimizer) {
    const TorchValue& state = root_.at("state");
    for (const int64_t key : state_keys(root_, optimizer, path))
      entries_.push_back(state.find(key));
  }

  [[nodiscard]] Description describe(size_t slot) const override {
    if (entries_[slot] == nullptr) return {};
    Description description{.has_state = true, .is_8bit = false, .updates = updates(slot)};
    if (kind() == "adamw_8bit") {
      description.is_8bit = tensor(slot, "state1").scalar_type() == at::kByte;
    }
    return description;
  }

  void read(size_t slot, Optimizer::Slot& target) const override {
    const TorchValue& entry = *entries_[slot];
    if (kind() == "sgd" && find_tensor(entry, "momentum_buffer") == nullptr) {
      target.state.clear();  // was made without momentum
      return;
    }
    if (kind() == "adafactor" && find_state(entry, "exp_avg") != nullptr) {
      reject_state(path(), name(slot), "exp_avg",
                   "belongs to Adafactor with beta1, which is not read");
    }
    for (const auto& [state, values] : target.state) {
      // The number 0 before the first update; made anew in every update, and of use to nothing.
      const TorchValue* found = find_state(entry, state.c_str());
      if (state == "RMS" && (found == nullptr || !found->is_stored_tensor())) continue;
      read_tensor(slot, state, values);
    }
  }

 private:
  [[nodiscard]] const std::string& name(size_t slot) const {
    return optimizer_.parameters().parameters()[optimizer_.slots()[slot].parameter].name;
  }

  [[noreturn]] void reject_missing(size_t slot, const std::string& state) const {
    reject_state(path(), name(slot), state,
                 "is missing: the file is not that of the optimizer '" + kind() + "'");
  }

  [[nodiscard]] const StoredTensor& tensor(size_t slot, const std::string& state) const {
    const StoredTensor* found = find_tensor(*entries_[slot], state.c_str());
    if (found == nullptr) reject_missing(slot, state);
    return *found;
  }

  // A number, or since torch 1.12 a tensor of one; torch's SGD counts nothing.
  [[nodiscard]] int64_t updates(size_t slot) const {
    const TorchValue* step = find_state(*entries_[slot], "step");
    if (step == nullptr && kind() == "sgd") {
      return find_tensor(*entries_[slot], "momentum_buffer") == nullptr ? 0 : 1;
    }
    if (step == nullptr) reject_missing(slot, "step");
    if (step->is_int() || step->is_double()) {
      return checked_updates(path(), name(slot), step->as_double());
    }
    const StoredTensor& stored = tensor(slot, "step");
    if (!stored.sizes().empty() && stored.sizes() != std::vector<int64_t>{1}) {
      reject_state(path(), name(slot), "step", "is no number");
    }
    return checked_updates(path(), name(slot), stored.read().item<double>());
  }

  void read_tensor(size_t slot, const std::string& state, const Tensor& target) const {
    const StoredTensor& stored = tensor(slot, state);
    if (at::IntArrayRef(stored.sizes()) != target.sizes()) {
      reject_state(path(), name(slot), state, "has another shape than the model gives it");
    }
    const bool converts = at::isFloatingType(stored.scalar_type()) && target.is_floating_point();
    if (!converts && stored.scalar_type() != target.scalar_type()) {
      reject_state(path(), name(slot), state, "has another type than its optimizer gives it");
    }
    if (state.starts_with("qmap")) {
      check_table(slot, state, stored.read(), target);
      return;
    }
    stored.read_into(target);
    check_state_values(path(), name(slot), state, target);
  }

  // All tensors have one table; another one would give their codes another meaning.
  void check_table(size_t slot, const std::string& state, const Tensor& theirs,
                   const Tensor& ours) const {
    if (!at::allclose(theirs.to(at::kFloat), ours.cpu(), 1e-6, 1e-9)) {
      reject_state(path(), name(slot), state, "is not bitsandbytes' dynamic map");
    }
  }

  TorchValue root_;
  std::vector<const TorchValue*> entries_;  // by slot; none: never updated
  const Optimizer& optimizer_;
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
