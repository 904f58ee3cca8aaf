// SPDX-License-Identifier: MIT
#include "finetune/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "finetune/kernels/sum_of_squares.h"

namespace finetune {

Optimizer::Optimizer(ParameterStore& parameters, std::vector<ParameterGroup> groups)
    : parameters_(parameters), groups_(std::move(groups)) {
  const size_t count = parameters.parameters().size();
  slot_of_.assign(count, count);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const OptimizerOptions& options = groups_[g].options;
    rules_.push_back(make_update_rule(options));
    std::erase_if(groups_[g].parameters,
                  [&](size_t p) { return !parameters.parameters().at(p).format.trainable; });
    for (const size_t p : groups_[g].parameters) {
      FT_CHECK(slot_of_.at(p) == count, "a parameter is in one group");
      slot_of_[p] = slots_.size();
      Slot& slot = slots_.emplace_back();
      slot.parameter = p;
      slot.group = g;
      const Parameter& parameter = parameter_of(slot);
      const OptimizerKind& kind = kind_of(slot);
      slot.is_8bit =
          kind.is_8bit && kind.is_8bit(parameter.role(), parameter.handle.numel(), options);
      std::string refusal = kind.refusal ? kind.refusal(parameter) : "";
      if (parameter.is_divided() && kind.reads_whole) {
        refusal = "its states are of whole matrices, which zero_stage 2 and 3 divide";
      }
      if (!refusal.empty()) {
        throw Error(ErrorKind::kConfig, "optim: '" + kind.name + "' cannot update '" +
                                            parameter.name() + "': " + refusal);
      }
    }
  }
}

const OptimizerOptions& Optimizer::options_of(const Slot& slot) const {
  return groups_[slot.group].options;
}

const OptimizerKind& Optimizer::kind_of(const Slot& slot) const {
  return optimizer_of_kind(options_of(slot).kind);
}

const OptimizerKind* Optimizer::only_kind() const {
  const auto differs = [&](const ParameterGroup& group) {
    return group.options.kind != groups_.front().options.kind;
  };
  if (groups_.empty() || std::ranges::any_of(groups_, differs)) return nullptr;
  return find_optimizer(groups_.front().options.kind);
}

bool Optimizer::is_blockwise() const {
  return std::ranges::all_of(groups_, [](const ParameterGroup& group) {
    return optimizer_of_kind(group.options.kind).is_blockwise;
  });
}

void Optimizer::step(double learning_rate, double factor, int64_t update) {
  const c10::NoGradGuard no_grad;
  auto slot = slots_.begin();
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<ParameterUpdate> updates;
    for (; slot != slots_.end() && slot->group == g; ++slot) {
      if (begin_update(*slot)) updates.push_back(update_of(*slot, learning_rate, factor, update));
    }
    rules_[g]->update_all(updates);
  }
}

void Optimizer::step_one(size_t parameter, double learning_rate, double factor, int64_t update) {
  const c10::NoGradGuard no_grad;
  const size_t position = slot_of_.at(parameter);
  if (position >= slots_.size() || !begin_update(slots_[position])) return;
  Slot& slot = slots_[position];
  rules_[slot.group]->update(update_of(slot, learning_rate, factor, update));
}

void Optimizer::create_state(Slot& slot) const {
  finetune::create_state(options_of(slot), parameter_of(slot), slot);
}

Parameter& Optimizer::parameter_of(const Slot& slot) const {
  return parameters_.parameters()[slot.parameter];
}

bool Optimizer::begin_update(Slot& slot) const {
  if (!parameter_of(slot).gradient.defined()) return false;
  if (slot.state.empty() && !slot.is_elsewhere) create_state(slot);
  ++slot.updates;
  return !slot.is_elsewhere && parameter_of(slot).weight.numel() > 0;
}

ParameterUpdate Optimizer::update_of(Slot& slot, double learning_rate, double factor,
                                     int64_t update) const {
  return {.parameter = parameter_of(slot),
          .slot = slot,
          .learning_rate = learning_rate * groups_[slot.group].learning_rate_factor,
          .factor = factor,
          .rounding_key = random::make_key(options_of(slot).seed, random::Purpose::kWeightRounding,
                                           static_cast<uint64_t>(update), slot.parameter)};
}

std::vector<ParameterGroup> group_parameters(const ParameterStore& parameters,
                                             const std::vector<bool>& decays,
                                             const std::vector<OptimizerUse>& uses) {
  const std::vector<Parameter>& all = parameters.parameters();
  FT_CHECK(decays.size() == all.size(), "one flag a parameter");
  std::vector<ParameterGroup> groups;
  for (const OptimizerUse& use : uses) {
    for (const bool decaying : {true, false}) {
      ParameterGroup& group =
          groups.emplace_back(ParameterGroup{.options = use.options,
                                             .parameters = {},
                                             .learning_rate_factor = use.learning_rate_factor});
      if (!decaying) group.options.weight_decay = 0.0;
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto use = std::ranges::find_if(
        uses, [&](const OptimizerUse& one) { return !one.takes || one.takes(all[i]); });
    FT_CHECK(use != uses.end(), "no optimizer takes " + all[i].name());
    const auto index = static_cast<size_t>(use - uses.begin());
    groups[2 * index + (decays[i] ? 0 : 1)].parameters.push_back(i);
  }
  return groups;
}

std::unique_ptr<Optimizer> make_optimizer(ParameterStore& parameters,
                                          const std::vector<bool>& decays,
                                          const OptimizerOptions& options) {
  return std::make_unique<Optimizer>(
      parameters, group_parameters(parameters, decays, {{.takes = {}, .options = options}}));
}

Moments moments_of(const Optimizer& optimizer, const Optimizer::Slot& slot) {
  const c10::NoGradGuard no_grad;
  const UpdateRule& rule = *optimizer.rules_[slot.group];
  if (!slot.state.empty()) return rule.read_moments(slot);
  Optimizer::Slot fresh = slot;
  optimizer.create_state(fresh);
  return rule.read_moments(fresh);
}

void set_moments(const Optimizer& optimizer, Optimizer::Slot& slot, const Moments& moments) {
  const c10::NoGradGuard no_grad;
  optimizer.create_state(slot);
  optimizer.rules_[slot.group]->write_moments(slot, moments);
}

double gradient_norm(const ParameterStore& parameters) {
  std::vector<Tensor> gradients;
  for (const Parameter& parameter : parameters.parameters()) {
    if (parameter.gradient.defined()) gradients.push_back(parameter.gradient);
  }
  return std::sqrt(sum_of_all_squares(gradients));
}

}  // namespace finetune
