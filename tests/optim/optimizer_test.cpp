// SPDX-License-Identifier: MIT
#include "finetune/optim/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/kernels/formats.h"
#include "finetune/kernels/sum_of_squares.h"

namespace finetune {
namespace {

struct Formats {
  WeightFormat weights;
  GradientFormat gradients;
};

const std::vector<Formats> kFormats = {{WeightFormat::kFloat32, GradientFormat::kFloat32},
                                       {WeightFormat::kFloat32, GradientFormat::kBFloat16},
                                       {WeightFormat::kBFloat16, GradientFormat::kFloat32},
                                       {WeightFormat::kBFloat16, GradientFormat::kBFloat16},
                                       {WeightFormat::kSplit, GradientFormat::kFloat32},
                                       {WeightFormat::kSplit, GradientFormat::kBFloat16}};

Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

// Sizes around blocks, chunks and the limit for 8 bits; one is large enough for several threads.
const std::vector<std::pair<std::string, std::vector<int64_t>>> kShapes = {
    {"encoder.embeddings.word_embeddings.weight", {130, 40}},
    {"encoder.dense.weight", {517, 640}},
    {"encoder.dense.bias", {33}},
    {"encoder.LayerNorm.weight", {1}},
    {"encoder.output.weight", {63, 65}},
    {"encoder.unused.weight", {2, 2}}};

// A store with these parameters, its optimizer, and gradients that are a function of the update.
class Trial {
 public:
  Trial(const OptimizerOptions& options, const Formats& formats)
      : Trial(options, formats, kShapes) {}
  Trial(const OptimizerOptions& options, const Formats& formats,
        const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes) {
    NamedTensors named;
    uint64_t seed = 0;
    std::vector<bool> decays;
    for (const auto& [name, shape] : shapes) {
      named.push_back({name, (normal(shape, ++seed) * 0.1).requires_grad_()});
      decays.push_back(shape.size() > 1);
    }
    std::vector<Tensor> values;
    for (const NamedTensor& tensor : named) values.push_back(tensor.tensor.detach().clone());
    store_ = std::make_unique<ParameterStore>(named, formats.weights, formats.gradients);
    for (size_t i = 0; i < values.size(); ++i) store_->assign(store_->parameters()[i], values[i]);
    optimizer_ = make_optimizer(*store_, decays, options);
  }

  ParameterStore& store() { return *store_; }
  Optimizer& optimizer() { return *optimizer_; }

  void make_gradients(int64_t update) {
    const auto type =
        store_->gradient_format() == GradientFormat::kFloat32 ? at::kFloat : at::kBFloat16;
    for (size_t i = 0; i < store_->parameters().size(); ++i) {
      Parameter& parameter = store_->parameters()[i];
      if (parameter.name().find("unused") != std::string::npos) continue;
      const auto seed = static_cast<uint64_t>(update * 1000) + i;
      parameter.gradient = normal(parameter.weight.sizes(), seed).to(type);
    }
  }

  void update(int64_t first, int64_t last, double factor = 0.25) {
    for (int64_t i = first; i < last; ++i) {
      make_gradients(i);
      optimizer_->step(1e-2, factor, i);
    }
  }

  // Returns weights and states.
  std::vector<Tensor> everything() {
    std::vector<Tensor> all;
    for (const Parameter& parameter : store_->parameters()) {
      all.push_back(parameter.weight.detach().clone());
      if (parameter.correction.defined()) all.push_back(parameter.correction.clone());
    }
    for (const Optimizer::Slot& slot : optimizer_->slots()) {
      for (const auto& [name, tensor] : slot.state) all.push_back(tensor.clone());
    }
    return all;
  }

 private:
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Optimizer> optimizer_;
};

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].scalar_type() == b[i].scalar_type() && at::equal(a[i], b[i])) << i;
  }
}

OptimizerOptions options_of(const std::string& kind) {
  return {.kind = kind,
          .weight_decay = 0.1,
          .arguments = {{"momentum", 0.9}, {"nesterov", true}},
          .seed = 3};
}

void for_each_combination(const std::function<void(const std::string&, const Formats&)>& body) {
  for (const std::string& kind : optimizer_kinds()) {
    for (const Formats& formats : kFormats) {
      SCOPED_TRACE(kind + ", weights " + std::to_string(static_cast<int>(formats.weights)) +
                   ", gradients " + std::to_string(static_cast<int>(formats.gradients)));
      body(kind, formats);
    }
  }
}

TEST(Optimizer, PutsDecayingParametersFirst) {
  Trial trial(options_of("adamw"), kFormats[0]);
  std::vector<size_t> order;
  for (const Optimizer::Slot& slot : trial.optimizer().slots()) order.push_back(slot.parameter);
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 4, 5, 2, 3}));
}

TEST(Optimizer, LeavesAParameterWithoutGradientAlone) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    Trial trial(options_of(kind), formats);
    const Tensor before = trial.store().values(trial.store().parameters()[5].handle).clone();
    trial.update(0, 2);
    EXPECT_TRUE(at::equal(trial.store().values(trial.store().parameters()[5].handle), before));
    const Optimizer::Slot& slot = trial.optimizer().slots()[3];
    EXPECT_EQ(slot.parameter, 5U);
    EXPECT_EQ(slot.updates, 0);
    EXPECT_TRUE(slot.state.empty());
  });
}

TEST(Optimizer, HasSlotsOfTrainedParametersAlone) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    ParameterStore store({{"frozen", at::zeros({8, 4})}, {"trained", at::zeros({8, 4})}},
                         formats.weights, formats.gradients);
    store.freeze([](const std::string& name) { return name == "frozen"; });
    for (Parameter& parameter : store.parameters()) store.assign(parameter, normal({8, 4}, 1));
    const Parameter& frozen = store.parameters()[0];
    const Parameter& trained = store.parameters()[1];
    const Tensor before = store.values(frozen.handle).clone();
    const auto optimizer = make_optimizer(store, {true, true}, options_of(kind));
    for (const Parameter* parameter : {&frozen, &trained}) {
      store.gradients().add(parameter->handle, normal({8, 4}, 2));
    }
    EXPECT_EQ(gradient_norm(store), std::sqrt(sum_of_squares(trained.gradient)));
    optimizer->step(1e-2, 1.0, 0);
    optimizer->step_one(0, 1e-2, 1.0, 1);
    ASSERT_EQ(optimizer->slots().size(), 1U);
    EXPECT_EQ(optimizer->slots()[0].parameter, 1U);
    EXPECT_EQ(optimizer->slots()[0].updates, 1);
    EXPECT_TRUE(store.values(frozen.handle).equal(before));
    EXPECT_FALSE(store.values(trained.handle).equal(before));
  });
}

TEST(Optimizer, ChangesEveryParameterThatHasAGradient) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    Trial trial(options_of(kind), formats);
    std::vector<Tensor> before;
    for (const Parameter& p : trial.store().parameters()) {
      before.push_back(trial.store().values(p.handle).clone());
    }
    trial.update(0, 1);
    for (size_t i = 0; i < 5; ++i) {
      const Tensor after = trial.store().values(trial.store().parameters()[i].handle);
      EXPECT_FALSE(at::equal(after, before[i])) << i;
      EXPECT_TRUE(after.isfinite().all().item<bool>()) << i;
    }
  });
}

TEST(Optimizer, KeepsTheStoredGradient) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    Trial trial(options_of(kind), formats);
    trial.make_gradients(0);
    const Tensor before = trial.store().parameters()[1].gradient.clone();
    trial.optimizer().step(1e-2, 0.5, 0);
    EXPECT_TRUE(at::equal(trial.store().parameters()[1].gradient, before));
  });
}

TEST(Optimizer, UpdatesAllParametersToTheBitsOfEachAlone) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    for (const double factor : {0.25, 1.0}) {
      Trial together(options_of(kind), formats);
      Trial alone(options_of(kind), formats);
      together.update(0, 3, factor);
      for (int64_t update = 0; update < 3; ++update) {
        alone.make_gradients(update);
        for (size_t i = 0; i < alone.store().parameters().size(); ++i) {
          alone.optimizer().step_one(i, 1e-2, factor, update);
        }
      }
      expect_equal(together.everything(), alone.everything());
    }
  });
}

TEST(Optimizer, DoesNotDependOnThreads) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    Trial two(options_of(kind), formats);
    Trial one(options_of(kind), formats);
    at::set_num_threads(2);
    two.update(0, 3);
    at::set_num_threads(1);
    one.update(0, 3);
    at::set_num_threads(2);
    expect_equal(two.everything(), one.everything());
  });
}

TEST(Optimizer, GoesOnFromACopiedStateWithEqualBits) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    Trial whole(options_of(kind), formats);
    whole.update(0, 2);
    Trial resumed(options_of(kind), formats);
    for (size_t i = 0; i < whole.store().parameters().size(); ++i) {
      Parameter& to = resumed.store().parameters()[i];
      const Parameter& from = whole.store().parameters()[i];
      to.weight.detach().copy_(from.weight.detach());
      if (from.correction.defined()) to.correction.copy_(from.correction);
    }
    for (size_t i = 0; i < whole.optimizer().slots().size(); ++i) {
      Optimizer::Slot& to = resumed.optimizer().slots()[i];
      const Optimizer::Slot& from = whole.optimizer().slots()[i];
      to.updates = from.updates;
      if (from.state.empty()) continue;
      resumed.optimizer().create_state(to);
      ASSERT_EQ(to.state.size(), from.state.size());
      for (size_t s = 0; s < from.state.size(); ++s) {
        EXPECT_EQ(to.state[s].first, from.state[s].first);
        EXPECT_EQ(to.state[s].second.sizes(), from.state[s].second.sizes());
        EXPECT_EQ(to.state[s].second.scalar_type(), from.state[s].second.scalar_type());
        to.state[s].second.copy_(from.state[s].second);
      }
    }
    whole.update(2, 4);
    resumed.update(2, 4);
    expect_equal(whole.everything(), resumed.everything());
  });
}

TEST(Optimizer, UpdatesOneParameterAsItDoesAll) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    Trial all(options_of(kind), formats);
    Trial single(options_of(kind), formats);
    for (int64_t i = 0; i < 2; ++i) {
      all.make_gradients(i);
      all.optimizer().step(1e-2, 1.0, i);
      single.make_gradients(i);
      for (size_t p = single.store().parameters().size(); p-- > 0;) {
        single.optimizer().step_one(p, 1e-2, 1.0, i);
      }
    }
    expect_equal(all.everything(), single.everything());
  });
}

// Minimises half the squared distance to a target; steps are too small for bfloat16 rounded to
// nearest.
TEST(Optimizer, FindsTheMinimumOfAQuadratic) {
  for_each_combination([](const std::string& kind, const Formats& formats) {
    OptimizerOptions options = options_of(kind);
    options.weight_decay = 0.0;
    Trial trial(options, formats, {{"w", {16, 80}}});
    Parameter& w = trial.store().parameters()[0];
    const Tensor target = normal({16, 80}, 99);
    for (int64_t i = 0; i < 400; ++i) {
      w.gradient =
          (trial.store().values(w.handle) - target)
              .to(formats.gradients == GradientFormat::kFloat32 ? at::kFloat : at::kBFloat16);
      trial.optimizer().step(6e-2 * std::pow(0.99, i), 1.0, i);
    }
    const double distance = (trial.store().values(w.handle) - target).abs().mean().item<double>();
    EXPECT_LT(distance, 0.01);
  });
}

TEST(Optimizer, RoundsWeightsWithTheSeedTheUpdateAndTheParameter) {
  const auto after = [](uint64_t seed, int64_t update) {
    OptimizerOptions options = options_of("adamw");
    options.seed = seed;
    Trial trial(options, {WeightFormat::kBFloat16, GradientFormat::kFloat32});
    trial.make_gradients(0);
    trial.optimizer().step(1e-4, 1.0, update);
    return trial.store().parameters()[1].weight.detach().clone();
  };
  EXPECT_TRUE(at::equal(after(1, 5), after(1, 5)));
  EXPECT_FALSE(at::equal(after(1, 5), after(2, 5)));
  EXPECT_FALSE(at::equal(after(1, 5), after(1, 6)));
}

TEST(Optimizer, RefusesAKindThatItDoesNotKnow) {
  EXPECT_THROW(Trial({.kind = "adam"}, kFormats[0]), Error);
}

TEST(Moments, SurviveEveryConversion) {
  for (const std::string from : {"adamw", "adamw_8bit", "adamw_companded_8bit"}) {
    for (const std::string to : {"adamw", "adamw_8bit", "adamw_companded_8bit"}) {
      SCOPED_TRACE(from + " to " + to);
      check_conversion(from, to);
      Trial source(options_of(from), kFormats[0]);
      Trial target(options_of(to), kFormats[0]);
      source.update(0, 3);
      for (size_t i = 0; i < source.optimizer().slots().size(); ++i) {
        Optimizer::Slot& slot = target.optimizer().slots()[i];
        const Moments moments = moments_of(source.optimizer(), source.optimizer().slots()[i]);
        set_moments(target.optimizer(), slot, moments);
        const Moments back = moments_of(target.optimizer(), slot);
        EXPECT_EQ(back.exp_avg.sizes(), moments.exp_avg.sizes());
        EXPECT_LT((back.exp_avg - moments.exp_avg).abs().max().item<double>(),
                  0.02 * moments.exp_avg.abs().max().item<double>() + 1e-30);
        EXPECT_LT((back.exp_avg_sq - moments.exp_avg_sq).abs().max().item<double>(),
                  0.02 * moments.exp_avg_sq.max().item<double>() + 1e-30);
      }
    }
  }
}

TEST(Moments, AreRefusedWhereAKindHasNone) {
  for (const std::string kind : {"sgd", "adafactor"}) {
    Trial trial(options_of(kind), kFormats[0]);
    trial.update(0, 1);
    Optimizer::Slot& slot = trial.optimizer().slots()[0];
    EXPECT_THROW(static_cast<void>(moments_of(trial.optimizer(), slot)), Error);
    EXPECT_THROW(set_moments(trial.optimizer(), slot, {}), Error);
    try {
      check_conversion(kind, "adamw");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find("'" + kind + "'"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("'adamw'"), std::string::npos);
    }
  }
}

TEST(GradientNorm, IsExactWhateverTheThreads) {
  Trial trial(options_of("adamw"), kFormats[0]);
  trial.make_gradients(0);
  double sum = 0.0;
  for (const Parameter& p : trial.store().parameters()) {
    if (p.gradient.defined()) sum += p.gradient.to(at::kDouble).square().sum().item<double>();
  }
  at::set_num_threads(2);
  const double two = gradient_norm(trial.store());
  at::set_num_threads(1);
  const double one = gradient_norm(trial.store());
  at::set_num_threads(2);
  EXPECT_EQ(one, two);
  EXPECT_NEAR(one, std::sqrt(sum), 1e-12 * one);
}

TEST(GradientNorm, SumsBFloat16AsItStands) {
  Trial wide(options_of("adamw"), kFormats[0]);
  Trial narrow(options_of("adamw"), kFormats[1]);
  narrow.make_gradients(0);
  for (size_t i = 0; i < kShapes.size(); ++i) {
    const Tensor& gradient = narrow.store().parameters()[i].gradient;
    if (gradient.defined()) wide.store().parameters()[i].gradient = gradient.to(at::kFloat);
  }
  EXPECT_EQ(gradient_norm(wide.store()), gradient_norm(narrow.store()));
}

TEST(GradientNorm, IsNotFiniteWhereAGradientIsNot) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const Formats& formats : {kFormats[0], kFormats[1]}) {
      Trial trial(options_of("adamw"), formats);
      trial.make_gradients(0);
      trial.store().parameters()[1].gradient.view(-1)[17].fill_(value);
      EXPECT_FALSE(std::isfinite(gradient_norm(trial.store())));
    }
  }
}

TEST(GradientNorm, DoesNotOverflowBeforeItsResultDoes) {
  Trial trial(options_of("adamw"), kFormats[0]);
  trial.store().parameters()[0].gradient = at::full({130, 40}, 1e30F);
  EXPECT_NEAR(gradient_norm(trial.store()) / (1e30 * std::sqrt(5200.0)), 1.0, 1e-6);
}

}  // namespace
}  // namespace finetune
