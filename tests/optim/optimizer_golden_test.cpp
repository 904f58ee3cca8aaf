// SPDX-License-Identifier: MIT
// Compares updates with torch, transformers and bitsandbytes (data/make_updates.py).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "finetune/kernels/quantized_state.h"
#include "finetune/optim/optimizer.h"
#include "finetune/tensor/safetensors.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

const Shapes kSmall = {{"layer.weight", {18, 30}}, {"layer.bias", {70}}};
const Shapes kLarge = {
    {"word_embeddings.weight", {65, 64}}, {"layer.weight", {64, 70}}, {"layer.bias", {70}}};
constexpr double kRates[] = {1e-2, 7e-3, 5e-3, 2e-3};
constexpr int64_t kUpdates = 4;

const SafetensorsFile& golden() {
  static const SafetensorsFile file = SafetensorsFile::open(
      FileSystem::local(), source_dir() + "/tests/fixtures/optim/updates.safetensors");
  return file;
}

// Returns integers from -4095 to 4095.
Tensor numbers(const std::string& name, at::IntArrayRef shape, int64_t update) {
  const int64_t seed = static_cast<int64_t>(name.size()) * 1299709 + update * 104729;
  const Tensor positions = at::arange(c10::multiply_integers(shape), at::kLong);
  return (positions * 7919 + seed).remainder(8191).sub(4095).to(at::kDouble).reshape(shape);
}

Tensor gradient(const std::string& name, at::IntArrayRef shape, int64_t update, bool is_even) {
  const Tensor k = numbers(name, shape, update);
  if (!is_even) return (k.pow(3) * 0x1p-36).to(at::kFloat);
  const Tensor sign = at::where(k < 0, at::Scalar(-1.0), at::Scalar(1.0));
  return (sign * (k.abs() * 3 + 4096) * 0x1p-14).to(at::kFloat);
}

struct GoldenTrial {
  GoldenTrial(const OptimizerOptions& options, const Shapes& shapes)
      : store(named(shapes), {}, {}) {
    std::vector<bool> decays;
    for (const auto& [name, shape] : shapes) decays.push_back(shape.size() > 1);
    optimizer = make_optimizer(store, decays, options);
  }

  void update(int64_t last, bool is_even = false) {
    for (; done < last; ++done) {
      for (Parameter& p : store.parameters()) {
        p.gradient = gradient(p.name(), p.weight.sizes(), done + 1, is_even);
      }
      optimizer->step(kRates[done], 1.0, done);
    }
  }

  static NamedTensors named(const Shapes& shapes) {
    NamedTensors tensors;
    for (const auto& [name, shape] : shapes) {
      tensors.push_back({.name = name,
                         .tensor = (numbers(name, shape, 0) * 0x1p-15).to(at::kFloat),
                         .role = name == "word_embeddings.weight" ? ParameterRole::kWordEmbedding
                                                                  : ParameterRole::kOther});
    }
    return tensors;
  }

  ParameterStore store;
  std::unique_ptr<Optimizer> optimizer;
  int64_t done = 0;
};

double largest(const Tensor& tensor) { return tensor.abs().max().item<double>(); }

// Compares weights, and states relative to the largest value of a tensor.
void expect_near(const GoldenTrial& run, const std::string& kind, double of_weights,
                 double of_states) {
  for (const Optimizer::Slot& slot : run.optimizer->slots()) {
    const Parameter& p = run.store.parameters()[slot.parameter];
    const std::string name = kind + "." + std::to_string(run.done) + "." + p.name();
    EXPECT_LE(largest(p.weight - golden().read(name)), of_weights) << name;
    for (const auto& [state, values] : slot.state) {
      if (!golden().has(name + "." + state) || !values.is_floating_point()) continue;
      const Tensor expected = golden().read(name + "." + state);
      EXPECT_LE(largest(values - expected), of_states * largest(expected)) << name << "." << state;
    }
  }
}

OptimizerOptions golden_options(const std::string& kind) {
  return {.kind = kind, .weight_decay = 0.1};
}

// float32 throughout: orders of rounding differ by a few units in the last place of weights below
// 0.15 and of updates below 0.01.
constexpr double kRounding = 5e-8;

TEST(OptimizerUpdates, OfAdamWAreTorchs) {
  GoldenTrial run(golden_options("adamw"), kSmall);
  run.update(kUpdates);
  expect_near(run, "adamw", kRounding, 1e-6);
}

TEST(OptimizerUpdates, OfAdafactorAreTransformers) {
  GoldenTrial run(golden_options("adafactor"), kSmall);
  run.update(kUpdates);
  expect_near(run, "adafactor", kRounding, 1e-6);
}

TEST(OptimizerUpdates, OfSgdAreTorchs) {
  GoldenTrial run(golden_options("sgd"), kSmall);
  run.update(kUpdates);
  expect_near(run, "sgd", kRounding, 1e-6);
  OptimizerOptions options = golden_options("sgd");
  options.arguments["momentum"] = 0.9;
  options.arguments["nesterov"] = true;
  GoldenTrial nesterov(options, kSmall);
  nesterov.update(kUpdates);
  expect_near(nesterov, "nesterov", kRounding, 1e-6);
}

// The last bit of moments may differ, because numpy's compiler and ours order products differently,
// and such a bit may decide between two codes.
TEST(OptimizerUpdates, Of8BitAdamWAreThoseOfBitsandbytesKernel) {
  GoldenTrial run(golden_options("adamw_8bit"), kLarge);
  run.update(kUpdates);
  const Tensor& weight = run.store.parameters()[1].weight;
  const std::string name = "exact.4.layer.weight";
  const auto differing = [](const Tensor& a, const Tensor& b) {
    return a.ne(b).sum().item<int64_t>();
  };
  EXPECT_LE(differing((weight - golden().read(name)).abs() <= kRounding,
                      at::ones_like(weight, at::kBool)),
            2);
  const Optimizer::Slot& slot = run.optimizer->slots()[1];
  ASSERT_TRUE(slot.is_8bit);
  for (const std::string state : {"state1", "state2"}) {
    const Tensor theirs = golden().read(name + "." + state);
    EXPECT_LE(differing(slot.at(state), theirs), 2) << state;
    EXPECT_LE(largest(slot.at(state).to(at::kInt) - theirs.to(at::kInt)), 1.0) << state;
  }
}

// Its CPU path applies the decay first, which changes an update by a factor of 1 - 1e-3, computes 1
// - beta2 in double precision, 5e-5 less than in single, and quantises in bins of 3e-5.
TEST(OptimizerUpdates, Of8BitAdamWAreBitsandbytesOnItsCpuToo) {
  constexpr double kBin = 2.0 / 65536;
  GoldenTrial run(golden_options("adamw_8bit"), kLarge);
  run.update(1, true);
  expect_near(run, "bitsandbytes", 1.1e-3 * kRates[0], 6e-5);
  run.update(kUpdates, true);
  double rates = 0;
  for (const double rate : kRates) rates += rate;
  expect_near(run, "bitsandbytes", 0.02 * rates, 0.01);
  for (const Optimizer::Slot& slot : run.optimizer->slots()) {
    const Parameter& p = run.store.parameters()[slot.parameter];
    EXPECT_EQ(slot.is_8bit, p.name() == "layer.weight") << p.name();
    for (const std::string state : {"state1", "state2"}) {
      const Tensor theirs = golden().read("bitsandbytes.4." + p.name() + "." + state);
      EXPECT_EQ(slot.at(state).scalar_type(), theirs.scalar_type()) << p.name() << state;
      if (!slot.is_8bit) continue;
      const Tensor map = dynamic_map(state == "state1");
      const auto decoded = [&](const Tensor& codes) {
        return map.index_select(0, codes.view(-1).to(at::kLong));
      };
      const Tensor apart = (decoded(slot.at(state)) - decoded(theirs)).abs();
      // Rounding may change a code by one; the widest neighbouring codes differ by 0.0141.
      EXPECT_LE(largest(apart), 0.02) << state;
      EXPECT_LE((apart > kBin).to(at::kDouble).mean().item<double>(), 0.005) << state;
    }
  }
}

TEST(OptimizerUpdates, KeepEmbeddingsIn32BitsByTheirRoleWhateverTheirName) {
  NamedTensors parameters;
  const auto add = [&](const std::string& name, ParameterRole role) {
    parameters.push_back({.name = name, .tensor = at::ones({64, 70}), .role = role});
  };
  add("model.embed_tokens.weight", ParameterRole::kWordEmbedding);
  add("transformer.wpe.weight", ParameterRole::kEmbedding);
  add("project_embeddings.weight", ParameterRole::kOther);
  // As PEFT's adapters on any module, embeddings too.
  add("model.embed_tokens.lora_embedding_B", ParameterRole::kAdapter);
  ParameterStore store(parameters, {}, {});
  const auto optimizer =
      make_optimizer(store, std::vector<bool>(4, true), golden_options("adamw_8bit"));
  std::vector<bool> is_8bit;
  for (const Optimizer::Slot& slot : optimizer->slots()) is_8bit.push_back(slot.is_8bit);
  EXPECT_EQ(is_8bit, std::vector<bool>({false, false, true, true}));
}

TEST(OptimizerUpdates, TakeEmbeddingsTo8BitsWhereAskedTo) {
  OptimizerOptions options = golden_options("adamw_8bit");
  options.arguments["embeddings_in_8bit"] = true;
  options.arguments["min_8bit_size"] = int64_t{70};
  GoldenTrial run(options, kLarge);
  run.update(1);
  for (const Optimizer::Slot& slot : run.optimizer->slots()) {
    EXPECT_EQ(slot.at("state1").scalar_type(), at::kByte);
  }
}

// The last bits are those of torch.linspace, which differ between processors.
TEST(DynamicMap, IsBitsandbytes) {
  for (const bool is_signed : {true, false}) {
    const Tensor theirs = golden().read(is_signed ? "qmap1" : "qmap2");
    const Tensor ours = dynamic_map(is_signed);
    EXPECT_TRUE(((ours - theirs).abs() <= theirs.abs() * 0x1p-21).all().item<bool>());
  }
}

// The mean distance in units of the learning rate: 0.0036 and 0.0026 after four updates.
TEST(OptimizerUpdates, Of8BitsFollowThoseOf32) {
  for (const auto& [kind, limit] : std::vector<std::pair<std::string, double>>{
           {"adamw_8bit", 0.006}, {"adamw_companded_8bit", 0.004}}) {
    GoldenTrial wide(golden_options("adamw"), kLarge);
    OptimizerOptions options = golden_options(kind);
    options.arguments["embeddings_in_8bit"] = true;
    GoldenTrial narrow(options, kLarge);
    wide.update(kUpdates, true);
    narrow.update(kUpdates, true);
    for (size_t i = 0; i < kLarge.size(); ++i) {
      const Tensor difference =
          wide.store.parameters()[i].weight - narrow.store.parameters()[i].weight;
      const double mean = difference.abs().mean().item<double>() / kRates[0];
      EXPECT_LT(mean, limit) << kind << i;
    }
  }
}

}  // namespace
}  // namespace finetune
