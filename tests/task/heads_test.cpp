// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "finetune/base/error.h"
#include "finetune/task/task.h"
#include "task/multiple_choice/multiple_choice.h"
#include "task/question_answering/question_answering.h"
#include "task/sequence_classification/sequence_classification.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

const c10::Device kHeadsDevice(c10::kCPU);

// Logits are looked up by token id, so that tests know them: [B, T, C], or those of the first
// token.
class TableModel final : public Model {
 public:
  TableModel(Tensor table, bool tokens) : tokens_(tokens) {
    store_ = std::make_unique<ParameterStore>(NamedTensors{{"table", table.clone()}},
                                              WeightFormat::kFloat32, GradientFormat::kFloat32);
    weights_ = {store_->weight("table")};
  }

  [[nodiscard]] const Weights& weights() const override { return weights_; }
  [[nodiscard]] ParameterStore& store() override { return *store_; }
  [[nodiscard]] const ParameterStore& store() const override { return *store_; }
  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] std::string architecture() const override { return "Table"; }
  [[nodiscard]] const ModelOptions& options() const override { return options_; }
  [[nodiscard]] Tensor logits(const ModelInput& input, const Tensor& /*positions*/) override {
    seen = input;
    const Tensor all = table()
                           .index_select(0, input.input_ids.flatten())
                           .view({input.input_ids.size(0), input.input_ids.size(1), -1});
    return tokens_ ? all : all.select(1, 0);
  }
  // What these tasks do not ask for.
  [[nodiscard]] Encoded encode(const ModelInput& /*input*/) override { std::abort(); }
  [[nodiscard]] Tensor head_logits(const ModelInput& /*input*/, const Tensor& /*hidden*/,
                                   const Tensor& /*positions*/) override {
    std::abort();
  }
  [[nodiscard]] Vocabulary vocabulary(const ModelInput& /*input*/, const Tensor& /*hidden*/,
                                      const Tensor& /*positions*/) override {
    std::abort();
  }
  [[nodiscard]] Tensor next_sentence(const ModelInput& /*input*/,
                                     const Encoded& /*encoded*/) override {
    std::abort();
  }
  [[nodiscard]] const Tensor& table() const { return store_->tensor(weights_[0]); }

  ModelInput seen;

 private:
  bool tokens_;
  ModelConfig config_;
  ModelOptions options_;
  Weights weights_;
  std::unique_ptr<ParameterStore> store_;
};

// `rows` rows of `length` tokens with the ids 0, 1, 2, ...
Batch batch_of(int64_t rows, int64_t length, int64_t choices = 1) {
  Batch batch;
  batch.rows = rows;
  batch.length = length;
  batch.choices = choices;
  for (int64_t i = 0; i < rows * length; ++i) batch.input_ids.push_back(i);
  for (int64_t i = 0; i < rows / choices; ++i) batch.samples.push_back(10 + i);
  batch.attention_mask.assign(batch.input_ids.size(), 1);
  batch.tokens = rows * length;
  return batch;
}

Tensor random_table(int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(2.0F * std::sin(static_cast<float>(3 * i + 1)));
  }
  return at::tensor(values).view({rows, columns});
}

// -log softmax(logits)[target] with transformers' label smoothing.
double cross_entropy(const Tensor& logits, int64_t target, double smoothing = 0.0) {
  const Tensor losses = -logits.to(at::kDouble).log_softmax(-1);
  return (1 - smoothing) * losses[target].item<double>() + smoothing * losses.mean().item<double>();
}

TEST(SequenceClassification, SumsTheCrossEntropyOfKnownClasses) {
  TableModel model(random_table(6, 3), false);
  Batch batch = batch_of(3, 2);
  batch.classes = {2, kIgnoredLabel, 0};
  const auto task =
      make_sequence_classification_task(model, kHeadsDevice, ProblemType::kSingleLabel, {});
  EXPECT_EQ(task->terms(), 1);
  EXPECT_EQ(task->count_targets(batch), std::vector<int64_t>{2});
  const double expected = cross_entropy(model.table()[0], 2) + cross_entropy(model.table()[4], 0);
  EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>(), expected, 1e-6);
  const Outputs outputs = task->evaluate(batch);
  EXPECT_NEAR(outputs.loss, expected / 2, 1e-6);
  EXPECT_EQ(outputs.targets, 2);
  EXPECT_EQ(outputs.logits.sizes(), (std::vector<int64_t>{3, 3}));
  EXPECT_FALSE(outputs.logits.requires_grad());
}

TEST(SequenceClassification, SmoothsLabelsAsTheTrainerDoes) {
  TableModel model(random_table(4, 3), false);
  Batch batch = batch_of(2, 2);
  batch.classes = {1, 2};
  const auto task = make_sequence_classification_task(
      model, kHeadsDevice, ProblemType::kSingleLabel, {.label_smoothing_factor = 0.2});
  const double expected =
      cross_entropy(model.table()[0], 1, 0.2) + cross_entropy(model.table()[2], 2, 0.2);
  EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>(), expected, 1e-6);
  EXPECT_NEAR(task->evaluate(batch).loss, expected / 2, 1e-6);
}

// torch's CrossEntropyLoss(weight=...) with its mean over one batch.
double weighted_mean(const Tensor& logits, const std::vector<int64_t>& classes,
                     const std::vector<double>& weights, double smoothing) {
  return at::cross_entropy_loss(logits.to(at::kDouble), at::tensor(classes), at::tensor(weights),
                                at::Reduction::Mean, kIgnoredLabel, smoothing)
      .item<double>();
}

TEST(SequenceClassification, WeighsClassesAsTorchDoes) {
  const std::vector<double> weights = {0.3, 1.7, 12.5};
  for (const double smoothing : {0.0, 0.2}) {
    TableModel model(random_table(5, 3), false);
    Batch batch = batch_of(5, 1);
    batch.classes = {2, kIgnoredLabel, 0, 1, 1};
    const auto task = make_sequence_classification_task(
        model, kHeadsDevice, ProblemType::kSingleLabel,
        {.label_smoothing_factor = smoothing, .class_weights = weights});
    const double expected = weighted_mean(model.table(), batch.classes, weights, smoothing);
    const auto targets = static_cast<double>(task->count_targets(batch)[0]);
    EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>() / targets, expected, 1e-6 * expected);
    const Outputs outputs = task->evaluate(batch);
    EXPECT_NEAR(outputs.loss, expected, 1e-6 * expected);
    EXPECT_GT(outputs.targets, 0);
  }
}

TEST(SequenceClassification, EqualWeightsAreNone) {
  TableModel model(random_table(3, 3), false);
  Batch batch = batch_of(3, 1);
  batch.classes = {2, 1, 0};
  const auto mean = [&](const LossOptions& options) {
    return make_sequence_classification_task(model, kHeadsDevice, ProblemType::kSingleLabel,
                                             options)
        ->evaluate(batch)
        .loss;
  };
  EXPECT_FLOAT_EQ(static_cast<float>(mean({.class_weights = {3, 3, 3}})),
                  static_cast<float>(mean({})));
}

TEST(SequenceClassification, SeveralLabelsAreBinaryDecisionsEach) {
  TableModel model(random_table(2, 3), false);
  Batch batch = batch_of(2, 1);
  batch.values = {1, 0, 1, 0, 0, 1};
  const auto task =
      make_sequence_classification_task(model, kHeadsDevice, ProblemType::kMultiLabel, {});
  EXPECT_EQ(task->count_targets(batch), std::vector<int64_t>{6});
  double expected = 0.0;
  for (int64_t i = 0; i < 6; ++i) {
    const auto logit = model.table()[i / 3][i % 3].item<double>();
    const double yes = 1.0 / (1.0 + std::exp(-logit));
    expected -= std::log(batch.values[static_cast<size_t>(i)] > 0 ? yes : 1.0 - yes);
  }
  EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>(), expected, 1e-5);
  EXPECT_NEAR(task->evaluate(batch).loss, expected / 6, 1e-6);
}

TEST(SequenceClassification, ANumberIsLearnedBySquaredError) {
  TableModel model(random_table(4, 1), false);
  Batch batch = batch_of(2, 2);
  batch.values = {0.5F, -3.0F};
  const auto task =
      make_sequence_classification_task(model, kHeadsDevice, ProblemType::kRegression, {});
  const double first = model.table()[0][0].item<double>() - 0.5;
  const double second = model.table()[2][0].item<double>() + 3.0;
  EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>(), first * first + second * second, 1e-5);
  EXPECT_NEAR(task->evaluate(batch).loss, (first * first + second * second) / 2, 1e-5);
}

TEST(SequenceClassification, WithoutLabelsThereAreLogitsAndNoLoss) {
  TableModel model(random_table(4, 3), false);
  for (const ProblemType problem :
       {ProblemType::kSingleLabel, ProblemType::kMultiLabel, ProblemType::kRegression}) {
    const auto task = make_sequence_classification_task(model, kHeadsDevice, problem, {});
    const Outputs outputs = task->evaluate(batch_of(2, 2));
    EXPECT_EQ(outputs.targets, 0);
    EXPECT_EQ(outputs.loss, 0.0);
    EXPECT_EQ(outputs.logits.sizes(), (std::vector<int64_t>{2, 3}));
    EXPECT_FALSE(task->loss_sums(batch_of(2, 2), {})[0].defined());
  }
}

TEST(SequenceClassification, NamesTheSampleWhoseClassTheModelLacks) {
  TableModel model(random_table(4, 3), false);
  Batch batch = batch_of(2, 2);
  batch.classes = {0, 3};
  const auto task =
      make_sequence_classification_task(model, kHeadsDevice, ProblemType::kSingleLabel, {});
  EXPECT_THAT([&] { (void)task->evaluate(batch); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("sample 11 has class 3")));
  batch.classes = {0, -7};
  EXPECT_THROW((void)task->evaluate(batch), Error);
}

TEST(SequenceClassification, SaysHowManyValuesTheModelExpects) {
  TableModel model(random_table(4, 3), false);
  Batch batch = batch_of(2, 2);
  batch.values = {1, 0, 1, 0};
  const auto task =
      make_sequence_classification_task(model, kHeadsDevice, ProblemType::kMultiLabel, {});
  EXPECT_THAT([&] { (void)task->evaluate(batch); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("2 values")));
}

TEST(MultipleChoice, ChoosesAmongTheRowsOfASample) {
  TableModel model(random_table(6, 1), false);
  Batch batch = batch_of(6, 1, 3);
  batch.classes = {2, 1};
  const auto task = make_multiple_choice_task(model, kHeadsDevice, {});
  const Tensor scores = model.table().view({2, 3});
  const double expected = cross_entropy(scores[0], 2) + cross_entropy(scores[1], 1);
  EXPECT_EQ(task->count_targets(batch), std::vector<int64_t>{2});
  EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>(), expected, 1e-6);
  EXPECT_TRUE(task->evaluate(batch).logits.equal(scores));
}

TEST(TokenClassification, LearnsTokensThatHaveALabel) {
  TableModel model(random_table(6, 4), true);
  Batch batch = batch_of(2, 3);
  batch.labels = {-100, 3, 0, 1, -100, -100};
  const auto task =
      make_token_classification_task(model, kHeadsDevice, {.label_smoothing_factor = 0.1});
  const double expected = cross_entropy(model.table()[1], 3, 0.1) +
                          cross_entropy(model.table()[2], 0, 0.1) +
                          cross_entropy(model.table()[3], 1, 0.1);
  EXPECT_EQ(task->count_targets(batch), std::vector<int64_t>{3});
  EXPECT_NEAR(task->loss_sums(batch, {})[0].item<double>(), expected, 1e-5);
  const Outputs outputs = task->evaluate(batch);
  EXPECT_NEAR(outputs.loss, expected / 3, 1e-6);
  EXPECT_EQ(outputs.logits.sizes(), (std::vector<int64_t>{2, 3, 4}));
}

TEST(TokenClassification, NamesTheSampleWhoseLabelTheModelLacks) {
  TableModel model(random_table(6, 4), true);
  Batch batch = batch_of(2, 3);
  batch.labels = {-100, 3, 0, 4, -100, -100};
  const auto task = make_token_classification_task(model, kHeadsDevice, {});
  EXPECT_THAT([&] { (void)task->evaluate(batch); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("sample 11 has class 4")));
}

TEST(QuestionAnswering, EachEndIsHalfTheLoss) {
  TableModel model(random_table(6, 2), true);
  Batch batch = batch_of(2, 3);
  batch.starts = {1, 0};
  batch.ends = {2, 0};
  const auto task = make_question_answering_task(model, kHeadsDevice);
  EXPECT_EQ(task->terms(), 2);
  EXPECT_EQ(task->count_targets(batch), (std::vector<int64_t>{2, 2}));
  const Tensor starts = model.table().select(1, 0).view({2, 3});
  const Tensor ends = model.table().select(1, 1).view({2, 3});
  const double start = cross_entropy(starts[0], 1) + cross_entropy(starts[1], 0);
  const double end = cross_entropy(ends[0], 2) + cross_entropy(ends[1], 0);
  const std::vector<Tensor> sums = task->loss_sums(batch, {});
  EXPECT_NEAR(sums[0].item<double>(), start / 2, 1e-6);
  EXPECT_NEAR(sums[1].item<double>(), end / 2, 1e-6);
  const Outputs outputs = task->evaluate(batch);
  EXPECT_NEAR(outputs.loss, (start / 2 + end / 2) / 2, 1e-6);
  EXPECT_EQ(outputs.targets, 2);
}

TEST(QuestionAnswering, AnEndBeyondTheRowIsNoTarget) {
  TableModel model(random_table(6, 2), true);
  Batch batch = batch_of(2, 3);
  batch.starts = {1, -4};
  batch.ends = {3, kIgnoredLabel};
  const auto task = make_question_answering_task(model, kHeadsDevice);
  EXPECT_EQ(task->count_targets(batch), (std::vector<int64_t>{2, 0}));
  const Tensor starts = model.table().select(1, 0).view({2, 3});
  const double start = cross_entropy(starts[0], 1) + cross_entropy(starts[1], 0);
  const std::vector<Tensor> sums = task->loss_sums(batch, {});
  EXPECT_NEAR(sums[0].item<double>(), start / 2, 1e-6);
  EXPECT_FALSE(sums[1].defined());
  EXPECT_NEAR(task->evaluate(batch).loss, start / 4, 1e-6);
}

TEST(QuestionAnswering, WithoutAnswersThereAreLogitsAndNoLoss) {
  TableModel model(random_table(6, 2), true);
  const auto task = make_question_answering_task(model, kHeadsDevice);
  const Outputs outputs = task->evaluate(batch_of(2, 3));
  EXPECT_EQ(outputs.targets, 0);
  EXPECT_EQ(outputs.logits.sizes(), (std::vector<int64_t>{2, 3, 2}));
  EXPECT_FALSE(task->loss_sums(batch_of(2, 3), {})[0].defined());
}

// Returns rows [first, last) of a batch.
Batch part(const Batch& batch, int64_t first, int64_t last) {
  Batch cut = batch_of(last - first, batch.length);
  const auto slice = [&](const auto& from, auto& to, int64_t width) {
    if (!from.empty()) to = {from.begin() + first * width, from.begin() + last * width};
  };
  slice(batch.input_ids, cut.input_ids, batch.length);
  slice(batch.labels, cut.labels, batch.length);
  slice(batch.starts, cut.starts, 1);
  slice(batch.ends, cut.ends, 1);
  return cut;
}

Tensor gradient(Task& task, TableModel& model, const std::vector<Batch>& batches) {
  std::vector<int64_t> targets(static_cast<size_t>(task.terms()));
  for (const Batch& batch : batches) {
    const auto counts = task.count_targets(batch);
    for (size_t i = 0; i < counts.size(); ++i) targets[i] += counts[i];
  }
  for (const Batch& batch : batches) {
    const auto sums = task.loss_sums(batch, {});
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!sums[i].defined()) continue;
      (sums[i] / static_cast<double>(targets[i])).backward({}, true);
    }
  }
  const Tensor result = model.table().grad().clone();
  model.table().mutable_grad().reset();
  return result;
}

TEST(Tasks, MicroBatchesWithUnequalTargetsEqualOneLargeBatch) {
  TableModel tokens(random_table(12, 4), true);
  Batch batch = batch_of(4, 3);
  batch.labels = {-100, 3, 0, 1, 2, 2, -100, -100, -100, 0, -100, -100};
  const auto classify = make_token_classification_task(tokens, kHeadsDevice, {});
  EXPECT_TRUE(at::allclose(
      gradient(*classify, tokens, {batch}),
      gradient(*classify, tokens, {part(batch, 0, 1), part(batch, 1, 3), part(batch, 3, 4)})));

  TableModel ends(random_table(12, 2), true);
  batch.starts = {0, 2, 5, 1};
  batch.ends = {0, 9, 7, 2};
  const auto answer = make_question_answering_task(ends, kHeadsDevice);
  EXPECT_TRUE(at::allclose(gradient(*answer, ends, {batch}),
                           gradient(*answer, ends, {part(batch, 0, 3), part(batch, 3, 4)})));
}

TEST(Tasks, MicroBatchesWithUnequalWeightsEqualOneLargeBatch) {
  TableModel tokens(random_table(12, 4), true);
  Batch batch = batch_of(4, 3);
  batch.labels = {-100, 3, 0, 1, 2, 2, -100, -100, -100, 0, -100, -100};
  const LossOptions options{.class_weights = {0.1, 1.0 / 3, 7, 0.9}};
  const auto classify = make_token_classification_task(tokens, kHeadsDevice, options);
  EXPECT_TRUE(at::allclose(
      gradient(*classify, tokens, {batch}),
      gradient(*classify, tokens, {part(batch, 0, 1), part(batch, 1, 3), part(batch, 3, 4)})));
  // The denominator depends neither on the division nor on the order.
  int64_t sum = 0;
  for (const int64_t row : {3, 1, 0, 2}) {
    sum += classify->count_targets(part(batch, row, row + 1))[0];
  }
  EXPECT_EQ(sum, classify->count_targets(batch)[0]);
  const double mean = classify->loss_sums(batch, {})[0].item<double>() / static_cast<double>(sum);
  EXPECT_NEAR(mean, weighted_mean(tokens.table(), batch.labels, options.class_weights, 0.0), 1e-6);
}

TEST(Tasks, FitTheHeadsOfModels) {
  ModelConfig config;
  config.model_type = "bert";
  config.vocab_size = 30;
  config.hidden_size = 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.intermediate_size = 32;
  config.max_position_embeddings = 12;
  config.type_vocab_size = 2;
  config.id2label = {"a", "b", "c"};
  Batch batch = batch_of(4, 3, 2);
  batch.token_type_ids = {0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1};
  batch.classes = {1, 0};
  const auto loss_of = [&](Head head, const auto& make_task) {
    const auto model = make_model(head, config, 7, kHeadsDevice);
    const std::unique_ptr<Task> task = make_task(*model);
    for (const Tensor& sum : task->loss_sums(batch, {.dropout = {.seed = 1}}))
      sum.backward({}, true);
    for (const NamedTensor& parameter : model->parameters()) {
      EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    }
    return task->evaluate(batch).loss;
  };
  const double choice = loss_of(Head::kMultipleChoice, [](Model& model) {
    return make_multiple_choice_task(model, kHeadsDevice, {});
  });
  EXPECT_NEAR(choice, std::log(2.0), 0.2);
  batch = part(batch, 0, 4);
  batch.classes = {2, 0, kIgnoredLabel, 1};
  const double sequence = loss_of(Head::kSequenceClassification, [](Model& model) {
    return make_sequence_classification_task(model, kHeadsDevice, ProblemType::kSingleLabel, {});
  });
  EXPECT_NEAR(sequence, std::log(3.0), 0.2);
  batch.labels = {-100, 0, 1, 2, -100, 0, 0, 1, 2, 0, 1, 2};
  const double token = loss_of(Head::kTokenClassification, [](Model& model) {
    return make_token_classification_task(model, kHeadsDevice, {});
  });
  EXPECT_NEAR(token, std::log(3.0), 0.2);
  batch.starts = {0, 1, 1, 0};
  batch.ends = {2, 2, 1, 0};
  const double answer = loss_of(Head::kQuestionAnswering, [](Model& model) {
    return make_question_answering_task(model, kHeadsDevice);
  });
  EXPECT_NEAR(answer, std::log(3.0), 0.2);
}

TEST(ModelInput, CarriesTokenTypesAndMaskWhereTheyMatter) {
  Batch batch = batch_of(2, 3);
  EXPECT_FALSE(make_model_input(batch, kHeadsDevice, {}).token_type_ids.defined());
  EXPECT_FALSE(make_model_input(batch, kHeadsDevice, {}).attention_mask.defined());
  batch.token_type_ids = {0, 0, 1, 0, 1, 0};
  batch.attention_mask = {1, 1, 1, 1, 1, 0};
  batch.tokens = 5;
  const ModelInput input = make_model_input(batch, kHeadsDevice, {});
  EXPECT_TRUE(input.token_type_ids.equal(at::tensor({0, 0, 1, 0, 1, 0}, at::kLong).view({2, 3})));
  EXPECT_TRUE(
      input.attention_mask.equal(at::tensor({1, 1, 1, 1, 1, 0}).view({2, 3}).to(at::kBool)));
  batch.token_type_ids.assign(6, 0);
  EXPECT_FALSE(make_model_input(batch, kHeadsDevice, {}).token_type_ids.defined());
}

}  // namespace
}  // namespace finetune
