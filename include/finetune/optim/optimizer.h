// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "finetune/kernels/parameter_store.h"
#include "finetune/optim/optimizer_kind.h"

namespace finetune {

// Parameters that are updated alike: an entry of param_groups in optimizer.pt.
struct ParameterGroup {
  OptimizerOptions options;           // kind and options; weight_decay holds for all of them
  std::vector<size_t> parameters;     // in the store
  double learning_rate_factor = 1.0;  // times the schedule's learning rate
};

// The update of a model: groups of parameters, each with its own kind and options.
class Optimizer {
 public:
  using Slot = OptimizerSlot;

  // Requires: each parameter of the store is in at most one group; one that is in none is never
  // updated, and frozen ones are taken out of theirs. Error(kConfig) for an unknown kind, or a
  // parameter that its group's kind refuses.
  Optimizer(ParameterStore& parameters, std::vector<ParameterGroup> groups);

  [[nodiscard]] ParameterStore& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }
  // One for each trained parameter of a group. Group after group, each in its own order: torch's
  // numbering in optimizer.pt.
  [[nodiscard]] std::vector<Slot>& slots() { return slots_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }

  [[nodiscard]] const OptimizerOptions& options_of(const Slot& slot) const;
  [[nodiscard]] const OptimizerKind& kind_of(const Slot& slot) const;
  // The kind of all groups; nullptr where they have several.
  [[nodiscard]] const OptimizerKind* only_kind() const;
  // Whether all kinds compute in blocks of a fixed size.
  [[nodiscard]] bool is_blockwise() const;

  // Updates every parameter that has a gradient, multiplied with `factor` (clipping, loss scale).
  // `update` counts the updates before this one: with seed it names the rounding's numbers.
  void step(double learning_rate, double factor, int64_t update);
  // One parameter, by its index in the store.
  void step_one(size_t parameter, double learning_rate, double factor, int64_t update);

  // Fills a slot with fresh state (zeros), of the shapes and types that a file of its kind has.
  void create_state(Slot& slot) const;

 private:
  friend Moments moments_of(const Optimizer& optimizer, const Slot& slot);
  friend void set_moments(const Optimizer& optimizer, Slot& slot, const Moments& moments);

  [[nodiscard]] Parameter& parameter_of(const Slot& slot) const;
  // Counts the update and creates missing state. False: nothing to update in this process.
  [[nodiscard]] bool begin_update(Slot& slot) const;
  [[nodiscard]] ParameterUpdate update_of(Slot& slot, double learning_rate, double factor,
                                          int64_t update) const;

  ParameterStore& parameters_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::unique_ptr<UpdateRule>> rules_;  // by group
  std::vector<Slot> slots_;
  std::vector<size_t> slot_of_;  // by parameter; beyond the slots: it has none
};

// One optimizer of several: the parameters that it takes, and how it updates them.
struct OptimizerUse {
  std::function<bool(const Parameter&)> takes;  // empty: all that are left
  OptimizerOptions options;
  double learning_rate_factor = 1.0;
};

// Each parameter goes to the first use that takes it. Two groups for each use: the parameters that
// decay (decays, by index in the store), then the others, whose weight_decay is 0; each in the
// store's order. Requires: every parameter is taken.
[[nodiscard]] std::vector<ParameterGroup> group_parameters(const ParameterStore& parameters,
                                                           const std::vector<bool>& decays,
                                                           const std::vector<OptimizerUse>& uses);

// One kind for all parameters.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(ParameterStore& parameters,
                                                        const std::vector<bool>& decays,
                                                        const OptimizerOptions& options);

// A slot's moments, zeros where it has no state yet; and back: the slot gets its state from them,
// rounded as its kind keeps it. Error(kConfig) where the kind has none (adafactor, sgd).
[[nodiscard]] Moments moments_of(const Optimizer& optimizer, const Optimizer::Slot& slot);
void set_moments(const Optimizer& optimizer, Optimizer::Slot& slot, const Moments& moments);

// The 2-norm of all gradients together; not finite where any of them is.
[[nodiscard]] double gradient_norm(const ParameterStore& parameters);

}  // namespace finetune
