// SPDX-License-Identifier: MIT
// Llama's block, built from the parts without changes to the tape, against a tiny random model of
// transformers: tests/fixtures/nn/make_goldens.py.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "finetune/base/file_system.h"
#include "finetune/nn/attention.h"
#include "finetune/nn/embedding.h"
#include "finetune/nn/feed_forward.h"
#include "finetune/nn/norm.h"
#include "finetune/tensor/meta_memory.h"
#include "finetune/tensor/safetensors.h"
#include "support/paths.h"

namespace finetune {
namespace {

constexpr int64_t kVocabulary = 31;
constexpr int64_t kHidden = 16;
constexpr int64_t kIntermediate = 24;
constexpr int64_t kHeads = 4;
constexpr int64_t kKeyHeads = 2;
constexpr int64_t kLayers = 2;
constexpr double kEpsilon = 1e-5;
constexpr double kRopeBase = 10000.0;

std::vector<nn::Rotation> rotations(const Tensor& ids) {
  const auto options = ids.options().dtype(at::kFloat);
  const Tensor exponents = at::arange(0, kHidden / kHeads, 2, options) / (kHidden / kHeads);
  return {nn::make_rotation(at::arange(ids.size(1), ids.options()),
                            at::pow(kRopeBase, exponents).reciprocal())};
}

Tensor silu(const Tensor& x) { return at::silu(x); }

// Touvron et al. 2023: h = x + O attend(rope(Q n), rope(K n), V n), n = norm1(x);
// y = h + down(silu(gate(m)) * up(m)), m = norm2(h).
class LlamaLayer {
 public:
  explicit LlamaLayer(const nn::Scope& scope)
      : query_(scope / "self_attn" / "q_proj", kHidden, kHidden, false),
        key_(scope / "self_attn" / "k_proj", kHidden, kHidden / 2, false),
        value_(scope / "self_attn" / "v_proj", kHidden, kHidden / 2, false),
        output_(scope / "self_attn" / "o_proj", kHidden, kHidden, false),
        feed_forward_(scope / "mlp",
                      {.size = kHidden, .intermediate = kIntermediate, .activation = silu}),
        norm1_(scope / "input_layernorm", kHidden, kEpsilon),
        norm2_(scope / "post_attention_layernorm", kHidden, kEpsilon) {}

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    const nn::Value n = norm1_(x, p);
    const nn::Rotation& rotation = p.options().rotations.front();
    nn::Projections all = rope({.value = value_(n, p), .key = key_(n, p), .query = query_(n, p)},
                               kHidden / kHeads, rotation, p);
    const nn::Value attended =
        attend(std::move(all), {.heads = kHeads, .kv_heads = kKeyHeads, .causal = true}, p);
    const nn::Value h = nn::add({x, output_(attended, p)}, p);
    return nn::add({h, feed_forward_(norm2_(h, p), p)}, p);
  }

 private:
  nn::Linear query_, key_, value_, output_;
  nn::GatedFeedForward feed_forward_;
  nn::RmsNorm norm1_, norm2_;
};

struct Llama {
  nn::Embedding embeddings;
  std::vector<LlamaLayer> layers;
  nn::RmsNorm norm;

  explicit Llama(const nn::Scope& scope)
      : embeddings(scope / "embed_tokens", kVocabulary, kHidden),
        layers(make_layers(scope)),
        norm(scope / "norm", kHidden, kEpsilon) {}

  nn::Value operator()(const Tensor& ids, nn::Pass& p) const {
    return norm(nn::sequence(layers, embeddings(ids, p), p), p);
  }

 private:
  static std::vector<LlamaLayer> make_layers(const nn::Scope& scope) {
    std::vector<LlamaLayer> made;
    for (int64_t i = 0; i < kLayers; ++i) made.emplace_back(scope / "layers" / i);
    return made;
  }
};

class LlamaFromParts : public testing::Test {
 protected:
  LlamaFromParts()
      : golden_(SafetensorsFile::open(FileSystem::local(),
                                      source_dir() + "/tests/fixtures/nn/llama.safetensors")),
        llama_(nn::Scope(parameters_)),
        store_(parameters_, WeightFormat::kFloat32, GradientFormat::kFloat32) {
    const c10::NoGradGuard no_grad;
    for (Parameter& parameter : store_.parameters()) {
      store_.assign(parameter, golden_.read(parameter.name()));
    }
  }

  // float32 with other orders of summation: values of magnitude 1 agree to five digits; gradients,
  // which are sums of products of both signs, to four.
  void expect_golden(const Tensor& hidden, const std::vector<Tensor>& gradients) {
    EXPECT_LT((hidden - golden_.read("hidden")).abs().max().item<double>(), 1e-5);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = parameters_[i].name();
      const Tensor expected = golden_.read("gradient." + name);
      ASSERT_TRUE(gradients[i].defined()) << name;
      EXPECT_LT((gradients[i] - expected).norm().item<double>(),
                1e-4 * expected.norm().item<double>())
          << name;
    }
  }

  SafetensorsFile golden_;
  Weights parameters_;
  Llama llama_;
  ParameterStore store_;
};

TEST_F(LlamaFromParts, HasTheHiddenStatesAndGradientsOfTransformersInPlainMode) {
  nn::Pass pass(nn::Mode::kPlain,
                {.parameters = &store_, .rotations = rotations(golden_.read("input_ids"))});
  const Tensor hidden = llama_(golden_.read("input_ids"), pass).tensor;
  (hidden * golden_.read("weight")).sum().backward();
  std::vector<Tensor> gradients;
  for (const NamedTensor& tensor : store_.tensors()) gradients.push_back(tensor.tensor.grad());
  expect_golden(hidden.detach(), gradients);
}

TEST_F(LlamaFromParts, TrainsOnTheTapeWithEveryWayOfKeeping) {
  const c10::NoGradGuard no_grad;
  for (const int64_t group : {0, 1, 2}) {
    store_.gradients().clear(/*keep_memory=*/false);
    nn::Pass pass(nn::Mode::kTrain,
                  {.parameters = &store_,
                   .rotations = rotations(golden_.read("input_ids")),
                   .checkpointing = {.enabled = group > 0, .every_n_layers = group}});
    const nn::Value hidden = llama_(golden_.read("input_ids"), pass);
    pass.backward(hidden, golden_.read("weight"));
    std::vector<Tensor> gradients;
    for (const Parameter& parameter : store_.parameters()) gradients.push_back(parameter.gradient);
    expect_golden(hidden.tensor, gradients);
  }
}

TEST_F(LlamaFromParts, HasItsNamesShapesAndMemoryInADryRun) {
  const c10::NoGradGuard no_grad;
  const c10::Device meta(c10::kMeta);
  const MetaMemory memory;
  Weights parameters;
  const Llama llama{nn::Scope(parameters)};
  ParameterStore store(parameters, WeightFormat::kFloat32, GradientFormat::kFloat32, meta);
  std::map<std::string, std::vector<int64_t>> made;
  std::map<std::string, std::vector<int64_t>> expected;
  int64_t weights = 4;  // the store's anchor
  for (const Weight& parameter : parameters) {
    made[parameter.name()] = parameter.sizes().vec();
    weights += 4 * parameter.numel();
  }
  for (const TensorInfo& info : golden_.tensors()) {
    if (golden_.has("gradient." + info.name))
      expected[info.name] = golden_.read(info.name).sizes().vec();
  }
  EXPECT_EQ(made, expected);
  EXPECT_EQ(memory.now(), weights);

  const auto peak_of = [&](int64_t group) {
    const int64_t before = memory.now();
    const Tensor ids = at::empty({2, 7}, at::TensorOptions(meta).dtype(at::kLong));
    nn::Pass pass(nn::Mode::kTrain,
                  {.parameters = &store,
                   .rotations = rotations(ids),
                   .checkpointing = {.enabled = group > 0, .every_n_layers = group}});
    nn::Value hidden = llama(ids, pass);
    const int64_t kept = memory.now() - before;
    hidden.tensor = Tensor();
    pass.backward(hidden, at::empty({2, 7, kHidden}, at::TensorOptions(meta).dtype(at::kFloat)));
    EXPECT_EQ(pass.options().checkpointing.group(), group);
    return kept;
  };
  EXPECT_LT(3 * peak_of(1), peak_of(0));
  EXPECT_GT(memory.peak(), weights);
}

}  // namespace
}  // namespace finetune
