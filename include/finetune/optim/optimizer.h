// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "finetune/optim/optimizer_kind.h"
#include "finetune/params/store.h"

namespace finetune {

// Parameters that share options: an entry of param_groups in optimizer.pt.
struct ParameterGroup {
  OptimizerOptions options;           // kind and options; weight_decay applies to all parameters
  std::vector<size_t> parameters;     // indices in the store
  double learning_rate_factor = 1.0;  // times the schedule's learning rate
};

// Updates a model's parameters in groups, each with its own kind and options.
class Optimizer {
 public:
  using Slot = OptimizerSlot;

  // Requires: each parameter of the store is in at most one group. A parameter in no group is never
  // updated; frozen ones are removed from their groups. Throws Error(kConfig) for an unknown kind,
  // or for a parameter that its group's kind refuses.
  Optimizer(ParameterStore& parameters, std::vector<ParameterGroup> groups);

  [[nodiscard]] ParameterStore& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }
  // Returns one slot for each trained parameter, ordered by group and then by order in the group:
  // torch's numbering in optimizer.pt.
  [[nodiscard]] std::vector<Slot>& slots() { return slots_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }

  [[nodiscard]] const OptimizerOptions& options_of(const Slot& slot) const;
  [[nodiscard]] const OptimizerKind& kind_of(const Slot& slot) const;
  // Returns the kind if all groups have the same one, else nullptr.
  [[nodiscard]] const OptimizerKind* only_kind() const;
  // Whether all kinds compute in blocks of fixed size.
  [[nodiscard]] bool is_blockwise() const;

  // Updates every parameter that has a gradient, which is multiplied by `factor` (clipping, loss
  // scale). `update` is the number of updates before this one; together with the seed it determines
  // the random numbers of rounding.
  void step(double learning_rate, double factor, int64_t update);
  // Updates one parameter, given by its index in the store.
  void step_one(size_t parameter, double learning_rate, double factor, int64_t update);

  // Creates a slot's initial state (zeros) with the shapes and types that files of its kind have.
  void create_state(Slot& slot) const;

 private:
  friend Moments moments_of(const Optimizer& optimizer, const Slot& slot);
  friend void set_moments(const Optimizer& optimizer, Slot& slot, const Moments& moments);

  [[nodiscard]] Parameter& parameter_of(const Slot& slot) const;
  // Counts the update and creates missing state. Returns false if this rank does not update the
  // parameter.
  [[nodiscard]] bool begin_update(Slot& slot) const;
  [[nodiscard]] ParameterUpdate update_of(Slot& slot, double learning_rate, double factor,
                                          int64_t update) const;

  ParameterStore& parameters_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::unique_ptr<UpdateRule>> rules_;  // by group
  std::vector<Slot> slots_;
  std::vector<size_t> slot_of_;  // by parameter; slots_.size() or more: no slot
};

// One of several optimizers: which parameters it takes, and how it updates them.
struct OptimizerUse {
  std::function<bool(const Parameter&)> takes;  // empty: all remaining ones
  OptimizerOptions options;
  double learning_rate_factor = 1.0;
};

// Assigns each parameter to the first use that takes it. Each use becomes two groups, both in the
// store's order: the parameters with weight decay (`decays`, by index in the store), then the
// others with weight_decay 0. Requires: some use takes each parameter.
[[nodiscard]] std::vector<ParameterGroup> group_parameters(const ParameterStore& parameters,
                                                           const std::vector<bool>& decays,
                                                           const std::vector<OptimizerUse>& uses);

// Makes an optimizer with one kind for all parameters.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(ParameterStore& parameters,
                                                        const std::vector<bool>& decays,
                                                        const OptimizerOptions& options);

// Converts a slot's state to moments (zeros if there is no state yet), and moments to a state in
// the kind's precision. Throws Error(kConfig) for kinds without moments (adafactor, sgd).
[[nodiscard]] Moments moments_of(const Optimizer& optimizer, const Optimizer::Slot& slot);
void set_moments(const Optimizer& optimizer, Optimizer::Slot& slot, const Moments& moments);

// Returns the 2-norm over all gradients; non-finite if any gradient is.
[[nodiscard]] double gradient_norm(const ParameterStore& parameters);

}  // namespace finetune
