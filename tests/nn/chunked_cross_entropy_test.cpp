// SPDX-License-Identifier: MIT
#include "finetune/nn/chunked_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "finetune/base/error.h"
#include "finetune/kernels/softmax_cross_entropy.h"

namespace finetune {
namespace {

struct Sizes {
  int64_t rows = 37;
  int64_t hidden = 24;
  int64_t vocabulary = 53;
};

// A head with random values, and the loss and gradients of at::cross_entropy_loss.
struct Head {
  explicit Head(const Sizes& sizes, WeightFormat format = WeightFormat::kFloat32,
                GradientFormat gradients = GradientFormat::kFloat32) {
    at::manual_seed(7);
    const Tensor values = at::randn({sizes.vocabulary, sizes.hidden});
    const Tensor bias_values = at::randn({sizes.vocabulary});
    x = at::randn({sizes.rows, sizes.hidden}).requires_grad_(true);
    labels = at::randint(sizes.vocabulary, {sizes.rows}, at::kLong);
    store = std::make_unique<ParameterStore>(
        NamedTensors{{"weight", values.clone()}, {"bias", bias_values.clone()}}, format, gradients);
    weight = store->weight("weight");
    bias = store->weight("bias");
    store->assign(store->parameters()[0], values);
    store->assign(store->parameters()[1], bias_values);
    store->gradients().begin_micro_batch({.seed = 1});
  }

  [[nodiscard]] const Tensor& gradient(size_t i) const { return store->parameters()[i].gradient; }

  Weight weight, bias;
  Tensor x, labels;
  std::unique_ptr<ParameterStore> store;
};

struct Expected {
  Tensor loss, x, weight, bias;
};

Expected expect(const Head& head, double smoothing, double scale, bool with_bias = true) {
  const auto leaf = [](const Tensor& values) {
    return values.detach().to(at::kDouble).requires_grad_(true);
  };
  const Tensor x = leaf(head.x);
  const Tensor weight = leaf(head.store->values(head.weight));
  const Tensor bias = leaf(head.store->values(head.bias));
  const Tensor logits = at::linear(x, weight, with_bias ? bias : Tensor());
  const Tensor loss =
      at::cross_entropy_loss(logits, head.labels, {}, at::Reduction::Sum, -100, smoothing);
  (loss * scale).backward();
  return {loss.detach(), x.grad(), weight.grad(), bias.grad()};
}

double relative_error(const Tensor& actual, const Tensor& expected) {
  const Tensor wide = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

void compare(Head& head, const ChunkedCrossEntropyOptions& options, double tolerance = 1e-5) {
  const Expected expected = expect(head, options.label_smoothing_factor, options.gradient_scale);
  const Tensor loss =
      chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store, options);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(loss, expected.loss), tolerance);
  (loss * options.gradient_scale).backward();
  EXPECT_LT(relative_error(head.x.grad(), expected.x), tolerance);
  EXPECT_LT(relative_error(head.gradient(0), expected.weight), tolerance);
  EXPECT_LT(relative_error(head.gradient(1), expected.bias), tolerance);
}

TEST(ChunkedCrossEntropy, EqualsCrossEntropyAndItsGradients) {
  Head head({});
  compare(head, {.gradient_scale = 0.125, .rows_per_chunk = 8});
}

TEST(ChunkedCrossEntropy, SmoothsLabelsAsTorchDoes) {
  for (const double smoothing : {0.1, 0.9, 1.0}) {
    Head head({});
    compare(head, {.label_smoothing_factor = smoothing, .gradient_scale = 3, .rows_per_chunk = 16});
  }
}

TEST(ChunkedCrossEntropy, TakesAVocabularyOfSeveralBlocks) {
  Head head({.rows = 5, .hidden = 1024, .vocabulary = 3500});
  compare(head, {.rows_per_chunk = 3});
}

// So large that processors with a token product (kernels/token_product.h) use it, with remainders
// of tokens and of the vocabulary.
TEST(ChunkedCrossEntropy, MultipliesLargeMatrices) {
  Head head({.rows = 300, .hidden = 512, .vocabulary = 5000});
  compare(head, {.gradient_scale = 0.5, .rows_per_chunk = 256}, 1e-5);
}

TEST(ChunkedCrossEntropy, DoesNotDependOnTheChunks) {
  Tensor first;
  for (const int64_t rows : {1, 5, 36, 37, 1000}) {
    Head head({});
    compare(head, {.rows_per_chunk = rows}, 1e-6);
    const Tensor gradient = head.gradient(0).clone();
    if (first.defined()) {
      EXPECT_LT(relative_error(gradient, first), 1e-6) << rows;
    }
    first = gradient;
  }
}

TEST(ChunkedCrossEntropy, NeedsNoBias) {
  Head head({});
  const Expected expected = expect(head, 0, 1, /*with_bias=*/false);
  const Tensor loss =
      chunked_cross_entropy(head.x, head.weight, Weight(), head.labels, *head.store, {});
  loss.backward();
  EXPECT_LT(relative_error(loss, expected.loss), 1e-6);
  EXPECT_LT(relative_error(head.gradient(0), expected.weight), 1e-5);
  EXPECT_FALSE(head.gradient(1).defined());
}

TEST(ChunkedCrossEntropy, AddsToTheGradientsOfEarlierMicroBatches) {
  Head head({});
  const Expected expected = expect(head, 0, 1);
  for (int i = 0; i < 2; ++i) {
    chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store, {}).backward();
  }
  EXPECT_LT(relative_error(head.gradient(0), expected.weight * 2), 1e-5);
  EXPECT_LT(relative_error(head.gradient(1), expected.bias * 2), 1e-5);
}

TEST(ChunkedCrossEntropy, GivesTheLossAloneWithoutGradMode) {
  Head head({});
  const Expected expected = expect(head, 0.1, 1);
  const c10::NoGradGuard no_grad;
  const Tensor loss = chunked_cross_entropy(head.x, head.weight, head.bias, head.labels,
                                            *head.store, {.label_smoothing_factor = 0.1});
  EXPECT_LT(relative_error(loss, expected.loss), 1e-6);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_FALSE(head.gradient(0).defined());
}

TEST(ChunkedCrossEntropy, AddsGradientsOfParametersWhereXNeedsNone) {
  Head head({});
  const Expected expected = expect(head, 0, 1);
  const Tensor loss =
      chunked_cross_entropy(head.x.detach(), head.weight, head.bias, head.labels, *head.store, {});
  EXPECT_TRUE(loss.requires_grad());
  loss.backward();
  EXPECT_LT(relative_error(head.gradient(0), expected.weight), 1e-5);
}

TEST(ChunkedCrossEntropy, IsZeroWithoutRows) {
  Head head({.rows = 0});
  const Tensor loss =
      chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store, {});
  EXPECT_EQ(loss.item<float>(), 0.0F);
  loss.backward();
  EXPECT_EQ(head.x.grad().numel(), 0);
}

TEST(ChunkedCrossEntropy, RefusesAnotherScaleThanAnnounced) {
  Head head({});
  const Tensor loss = chunked_cross_entropy(head.x, head.weight, head.bias, head.labels,
                                            *head.store, {.gradient_scale = 0.5});
  EXPECT_THROW((loss * 0.5001).backward(), std::logic_error);
}

TEST(ChunkedCrossEntropy, RefusesASecondBackwardPass) {
  Head head({});
  const Tensor loss =
      chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store, {});
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), std::logic_error);
}

TEST(ChunkedCrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  for (const int64_t label : {-1, 53, -100}) {
    Head head({});
    head.labels[11] = label;
    try {
      (void)chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store, {});
      ADD_FAILURE() << label;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_NE(std::string(error.what()).find(std::to_string(label)), std::string::npos);
    }
  }
}

TEST(ChunkedCrossEntropy, ReadsWeightsOfEveryFormat) {
  for (const auto format : {WeightFormat::kBFloat16, WeightFormat::kSplit}) {
    Head head({.rows = 9, .hidden = 1024, .vocabulary = 2000}, format);
    compare(head, {.rows_per_chunk = 4});
  }
}

TEST(ChunkedCrossEntropy, AddsToGradientsInBFloat16) {
  Head head({.rows = 9, .hidden = 1024, .vocabulary = 2000}, WeightFormat::kFloat32,
            GradientFormat::kBFloat16);
  const Expected expected = expect(head, 0, 1);
  chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store,
                        {.rows_per_chunk = 4})
      .backward();
  EXPECT_EQ(head.gradient(0).scalar_type(), at::kBFloat16);
  EXPECT_LT(relative_error(head.x.grad(), expected.x), 1e-5);
  EXPECT_LT(relative_error(head.gradient(0), expected.weight), 0x1p-7);
  EXPECT_LT(relative_error(head.gradient(1), expected.bias), 0x1p-7);
}

TEST(ChunkedCrossEntropy, ComputesInHalves) {
  for (const auto precision : {Precision::kBFloat16, Precision::kFloat16}) {
    Head head({.rows = 9, .hidden = 64, .vocabulary = 200});
    head.x = head.x.detach().to(scalar_type(precision)).requires_grad_(true);
    const double tolerance = precision == Precision::kBFloat16 ? 2e-2 : 2e-3;
    compare(head, {.gradient_scale = 64, .rows_per_chunk = 4, .precision = precision}, tolerance);
    EXPECT_EQ(head.x.grad().scalar_type(), scalar_type(precision));
  }
}

// Counts the bytes that ATen's allocator allocates on this thread.
class AllocationPeak : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, int64_t size, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    now_ += size;
    peak_ = std::max(peak_, now_);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

TEST(ChunkedCrossEntropy, HoldsTheLogitsOfOneChunk) {
  const Sizes sizes{.rows = 640, .hidden = 64, .vocabulary = 9000};
  Head head(sizes);
  chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store, {}).backward();
  const auto memory = std::make_shared<AllocationPeak>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
    chunked_cross_entropy(head.x, head.weight, head.bias, head.labels, *head.store,
                          {.rows_per_chunk = 32})
        .backward();
  }
  const int64_t logits_of_a_chunk = 32 * sizes.vocabulary * 4;
  const int64_t rows = 4 * sizes.rows * sizes.hidden * 4;
  const int64_t biases = 4 * sizes.vocabulary * 4;
  EXPECT_GE(memory->peak(), logits_of_a_chunk);
  EXPECT_LE(memory->peak(), logits_of_a_chunk + rows + biases);
}

TEST(SoftmaxCrossEntropy, KeepsInfinitiesAndNumbersThatAreNone) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor labels = at::full({3}, 1, at::kLong);
  Tensor logits = at::full({3, 40}, 1.0F);
  logits[0][20] = std::numeric_limits<float>::quiet_NaN();
  logits[1][20] = infinity;
  logits[2][20] = -infinity;
  const Tensor losses = kernels::softmax_cross_entropy_(logits, labels, {});
  EXPECT_TRUE(std::isnan(losses[0].item<double>()));
  EXPECT_TRUE(logits[0].isnan().all().item<bool>());
  EXPECT_FALSE(std::isfinite(losses[1].item<double>()));
  EXPECT_TRUE(logits[1].isnan().any().item<bool>());
  EXPECT_NEAR(losses[2].item<double>(), std::log(39.0), 1e-6);
  EXPECT_EQ(logits[2][20].item<float>(), 0.0F);
}

}  // namespace
}  // namespace finetune
