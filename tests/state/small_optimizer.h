// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "finetune/optim/optimizer.h"

namespace finetune::testing {

inline Tensor wave(at::IntArrayRef shape, double phase) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).mul(0.37).add(phase).sin().reshape(shape).to(at::kFloat);
}

// Four parameters: one large enough for 8 bits, two small ones, and one that the task does not use.
inline NamedTensors small_parameters() {
  NamedTensors parameters;
  double phase = 1.0;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"layer.w", {64, 70}}, {"layer.b", {70}}, {"head.w", {4, 70}}, {"pooler.w", {3, 5}}}) {
    parameters.push_back({name, wave(shape, phase).set_requires_grad(true)});
    phase += 1.0;
  }
  return parameters;
}

// An optimizer and the parameters that it updates.
struct SmallOptimizer {
  ParameterStore store;
  std::unique_ptr<Optimizer> optimizer;

  explicit SmallOptimizer(const OptimizerOptions& options,
                          WeightFormat weights = WeightFormat::kFloat32,
                          const std::string& frozen = "")
      : SmallOptimizer(std::vector<OptimizerUse>{{.takes = {}, .options = options}}, weights,
                       frozen) {}

  explicit SmallOptimizer(const std::vector<OptimizerUse>& uses,
                          WeightFormat weights = WeightFormat::kFloat32,
                          const std::string& frozen = "")
      : store(small_parameters(), weights, GradientFormat::kFloat32) {
    const NamedTensors values = small_parameters();
    for (size_t i = 0; i < values.size(); ++i) {
      store.assign(store.parameters()[i], values[i].tensor.detach());
    }
    store.freeze([&](const std::string& name) { return name == frozen; });
    optimizer = std::make_unique<Optimizer>(
        store, group_parameters(store, {true, false, true, true}, uses));
  }

  // Updates all parameters except the last.
  SmallOptimizer& update(int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      store.gradients().begin_micro_batch({.seed = 1, .update = i, .first_position = 0});
      for (size_t p = 0; p + 1 < store.parameters().size(); ++p) {
        const Weight& weight = store.parameters()[p].handle;
        store.gradients().add(weight, wave(weight.sizes(), static_cast<double>(i) * 1.7).mul(0.01));
      }
      optimizer->step(1e-3, 1.0, i);
      store.gradients().clear(false);
    }
    return *this;
  }
};

inline OptimizerOptions options_of(const std::string& kind) {
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = 0.1;
  if (kind == "sgd") options.arguments["momentum"] = 0.9;
  return options;
}

// Compares bytes, not values: 0.0 differs from -0.0.
inline bool same_bytes(const Tensor& left, const Tensor& right) {
  if (left.defined() != right.defined()) return false;
  if (!left.defined()) return true;
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

inline void expect_same_states(const Optimizer& left, const Optimizer& right) {
  ASSERT_EQ(left.slots().size(), right.slots().size());
  for (size_t i = 0; i < left.slots().size(); ++i) {
    const Optimizer::Slot& a = left.slots()[i];
    const Optimizer::Slot& b = right.slots()[i];
    EXPECT_EQ(a.updates, b.updates) << i;
    EXPECT_EQ(a.is_8bit, b.is_8bit) << i;
    ASSERT_EQ(a.state.size(), b.state.size()) << i;
    for (size_t s = 0; s < a.state.size(); ++s) {
      EXPECT_EQ(a.state[s].first, b.state[s].first);
      EXPECT_TRUE(same_bytes(a.state[s].second, b.state[s].second)) << i << a.state[s].first;
    }
  }
}

inline void expect_same_weights(const ParameterStore& left, const ParameterStore& right) {
  for (size_t i = 0; i < left.parameters().size(); ++i) {
    const Parameter& a = left.parameters()[i];
    const Parameter& b = right.parameters()[i];
    EXPECT_TRUE(same_bytes(a.weight.detach(), b.weight.detach())) << a.name();
    EXPECT_TRUE(same_bytes(a.correction, b.correction)) << a.name();
  }
}

}  // namespace finetune::testing
