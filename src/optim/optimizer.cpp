// SPDX-License-Identifier: MIT
#include "finetune/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "optim/kinds.h"

namespace finetune {
namespace {

constexpr const char* kWithMoments[] = {"adamw", "adamw_8bit", "adamw_companded_8bit"};

bool has_moments(const std::string& kind) {
  return std::ranges::find(kWithMoments, kind) != std::end(kWithMoments);
}

[[noreturn]] void no_moments(const std::string& kind) {
  throw Error(ErrorKind::kConfig, "optim: the state of '" + kind +
                                      "' has no moments to convert; adamw, adamw_8bit and "
                                      "adamw_companded_8bit have");
}

}  // namespace

Tensor* Optimizer::Slot::find(const std::string& name) {
  for (auto& [key, tensor] : state) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

const Tensor& Optimizer::Slot::at(const std::string& name) const {
  for (const auto& [key, tensor] : state) {
    if (key == name) return tensor;
  }
  FT_CHECK(false, "no state of the name " + name);
}

Optimizer::Optimizer(ParameterStore& parameters, const std::vector<bool>& decays,
                     const OptimizerOptions& options)
    : parameters_(parameters), options_(options) {
  const size_t count = parameters.parameters().size();
  FT_CHECK(decays.size() == count, "one flag a parameter");
  slot_of_.resize(count);
  for (const bool group : {true, false}) {
    for (size_t i = 0; i < count; ++i) {
      if (decays[i] != group || !parameters.parameters()[i].format.trainable) continue;
      slot_of_[i] = slots_.size();
      slots_.emplace_back();
      slots_.back().parameter = i;
      slots_.back().decays = group;
    }
  }
}

void Optimizer::step(double learning_rate, double factor, int64_t update) {
  for (const Slot& slot : slots_) step_one(slot.parameter, learning_rate, factor, update);
}

void Optimizer::step_one(size_t parameter, double learning_rate, double factor, int64_t update) {
  const c10::NoGradGuard no_grad;
  if (!parameters_.parameters().at(parameter).gradient.defined()) return;  // frozen ones never have
  Slot& slot = slots_.at(slot_of_.at(parameter));
  if (slot.is_elsewhere) {
    ++slot.updates;
    return;
  }
  begin_update(slot);
  update_slot(slot, learning_rate, factor, update);
}

Parameter& Optimizer::parameter_of(const Slot& slot) const {
  return parameters_.parameters()[slot.parameter];
}

double Optimizer::weight_decay_of(const Slot& slot) const {
  return slot.decays ? options_.weight_decay : 0.0;
}

uint64_t Optimizer::rounding_key(const Slot& slot, int64_t update) const {
  return random::make_key(options_.seed, random::Purpose::kWeightRounding,
                          static_cast<uint64_t>(update), slot.parameter);
}

void Optimizer::begin_update(Slot& slot) const {
  if (slot.state.empty()) create_state(slot);
  ++slot.updates;
}

Moments Optimizer::read_moments(const Slot& /*slot*/) const { no_moments(options_.kind); }

void Optimizer::write_moments(Slot& /*slot*/, const Moments& /*moments*/) const {
  no_moments(options_.kind);
}

const std::vector<std::string>& optimizer_kinds() {
  static const std::vector<std::string> kinds = {"adamw", "adamw_8bit", "adamw_companded_8bit",
                                                 "adafactor", "sgd"};
  return kinds;
}

std::unique_ptr<Optimizer> make_optimizer(ParameterStore& parameters,
                                          const std::vector<bool>& decays,
                                          const OptimizerOptions& options) {
  if (options.kind == "adamw") return make_adamw(parameters, decays, options);
  if (options.kind == "adamw_8bit") return make_adamw_8bit(parameters, decays, options);
  if (options.kind == "adamw_companded_8bit") {
    return make_adamw_companded(parameters, decays, options);
  }
  if (options.kind == "adafactor") return make_adafactor(parameters, decays, options);
  if (options.kind == "sgd") return make_sgd(parameters, decays, options);
  throw Error(ErrorKind::kConfig, "optim: '" + options.kind +
                                      "' is not an optimizer; adamw, adamw_8bit, "
                                      "adamw_companded_8bit, adafactor and sgd are");
}

void check_conversion(const std::string& from, const std::string& to) {
  if (from == to || (has_moments(from) && has_moments(to))) return;
  throw Error(ErrorKind::kConfig, "optim: the state of '" + from + "' cannot become one of '" + to +
                                      "'; resume with '" + from + "' to keep it");
}

Moments moments_of(const Optimizer& optimizer, const Optimizer::Slot& slot) {
  const c10::NoGradGuard no_grad;
  if (!slot.state.empty()) return optimizer.read_moments(slot);
  Optimizer::Slot fresh = slot;
  optimizer.create_state(fresh);
  return optimizer.read_moments(fresh);
}

void set_moments(const Optimizer& optimizer, Optimizer::Slot& slot, const Moments& moments) {
  const c10::NoGradGuard no_grad;
  optimizer.create_state(slot);
  optimizer.write_moments(slot, moments);
}

}  // namespace finetune
