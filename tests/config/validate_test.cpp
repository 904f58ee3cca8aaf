// SPDX-License-Identifier: MIT
#include "finetune/config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_yaml;
using ::testing::StartsWith;

// Five valid lines; the sixth and later lines of a test break a rule.
const std::string kGood =
    "train_file: a.txt\nmodel_type: roberta\ntokenizer_name: ./t\nseed: 1\nmax_steps: 10\n";

std::string problem(const std::string& text, Purpose purpose = Purpose::kTrain) {
  try {
    validate(load_yaml(text), purpose);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kConfig ? error.what() : "wrong kind of error";
  }
  return "";
}

TEST(Validate, AcceptsWhatIsInOrder) {
  EXPECT_EQ(problem(kGood), "");
  EXPECT_EQ(problem(kGood + "eval_strategy: steps\neval_steps: 5\nsave_steps: 10\n"
                            "load_best_model_at_end: true\nearly_stopping_patience: 2\n"),
            "");
  EXPECT_EQ(problem("train_file: a\nmodel_name_or_path: ./m\n"), "");
  EXPECT_EQ(problem("validation_file: a\n", Purpose::kEvaluate), "");
}

TEST(Validate, RefusesWhatBelongsToAnotherTask) {
  const std::string base = "train_file: a\nmodel_name_or_path: ./m\nmax_steps: 1\n";
  EXPECT_EQ(problem(base + "task: question_answering\ndoc_stride: 64\n"), "");
  EXPECT_EQ(problem(base + "task: question_answering\nline_by_line: false\n"), "");
  EXPECT_GOLDEN(problem(base + "task: multiple_choice\ndoc_stride: 64\n"));
  EXPECT_GOLDEN(problem(base + "text_pair_column: b\n"));
  EXPECT_GOLDEN(problem(base + "task: sequence_classification\nproblem_type: regression\n"
                               "label_smoothing_factor: 0.1\n"));
}

TEST(Validate, RefusesWhatAStreamCannotDo) {
  const std::string base = "train_file: a\nmodel_name_or_path: ./m\nstreaming: true\n";
  EXPECT_EQ(problem(base + "max_steps: 1\n"), "");
  EXPECT_EQ(problem(base + "max_steps: 1\nshuffle_buffer_size: 1\n"), "");
  EXPECT_EQ(problem(base + "max_steps: 1\ntask: multiple_choice\n"), "");
  EXPECT_GOLDEN(problem(base));
  const std::string limited = base + "max_steps: 1\n";
  EXPECT_GOLDEN(problem(limited + "packing: true\n"));
  EXPECT_GOLDEN(problem(limited + "train_sampling_strategy: group_by_length\n"));
  EXPECT_GOLDEN(
      problem("train_file: [{path: a, weight: 1}, {path: b, weight: 2}]\n"
              "model_name_or_path: ./m\nstreaming: true\nmax_steps: 1\n"));
  EXPECT_GOLDEN(problem(limited + "task: sequence_classification\nclass_weights: balanced\n"));
  for (const char* task : {"pretraining", "question_answering"}) {
    EXPECT_GOLDEN(problem(limited + "task: " + task + "\n"));
  }
  EXPECT_GOLDEN(problem(limited + "validation_split_percentage: 3\n"));
  EXPECT_EQ(problem(limited + "validation_split_percentage: 3\nvalidation_file: v\n"), "");
  EXPECT_EQ(problem(limited + "validation_split_percentage: 0\n"), "");
  EXPECT_GOLDEN(problem(limited + "eval_strategy: epoch\n"));
  EXPECT_GOLDEN(problem("train_file: a\nmodel_name_or_path: ./m\nshuffle_buffer_size: 10\n"));
}

TEST(Validate, RefusesSetsThatHaveNoUpdatesOfTheirOwn) {
  const std::string base = "model_name_or_path: ./m\ntask: embedding\nmax_steps: 1\n";
  const std::string two = "train_file: {a: a, b: {path: b, loss_type: CoSENTLoss}}\n";
  EXPECT_EQ(problem(base + two), "");
  EXPECT_GOLDEN(problem(base + two + "streaming: true\n"));
  EXPECT_GOLDEN(problem(base + two + "max_train_samples: 3\n"));
  EXPECT_GOLDEN(problem(base + two + "train_file_weights: [1, 2]\n"));
  EXPECT_GOLDEN(problem(base + two + "dataloader_drop_last: true\n"));
  EXPECT_GOLDEN(problem(base + two + "eval_strategy: epoch\nvalidation_split_percentage: 5\n"));
  EXPECT_GOLDEN(problem(base + "train_file: {a: {path: a, weight: 2}}\n"));
  EXPECT_GOLDEN(problem(base + "train_file: {a: {loss_type: CoSENTLoss}}\n"));
  EXPECT_GOLDEN(problem(base + "train_file: {a: {path: a, loss_kwargs: 3}}\n"));
  EXPECT_GOLDEN(problem(base + "train_file: {}\n"));
  EXPECT_GOLDEN(problem(base + "train_file: [a, b]\ntrain_file_sets: {a: {}}\n"));
  EXPECT_GOLDEN(problem(base + "train_file: a\nmulti_dataset_batch_sampler: round_robin\n"));
  EXPECT_GOLDEN(problem("model_name_or_path: ./m\nmax_steps: 1\ntask: mlm\n" + two));
}

TEST(Validate, LabelledTasksNeedFilesToEvaluateAndPredictOn) {
  const std::string base =
      "train_file: a\nmodel_name_or_path: ./m\ntask: multiple_choice\nmax_steps: 1\n";
  EXPECT_GOLDEN(problem(base + "eval_strategy: epoch\n"));
  EXPECT_GOLDEN(problem(base + "do_predict: true\n"));
  EXPECT_EQ(problem(base + "do_predict: true\ntest_file: t\n"), "");
}

TEST(Validate, BreaksOnEachOfTransformersRules) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"logging_steps: 0", "run.yaml:6: 'logging_strategy: steps' needs logging_steps above 0"},
      {"logging_steps: 1.5",
       "run.yaml:6: 'logging_steps' must be a whole number where it is above "
       "1, not 1.5"},
      {"save_steps: 2.5", "run.yaml:6: 'save_steps' must be a whole number"},
      {"eval_steps: 2.5\neval_strategy: steps", "run.yaml:6: 'eval_steps' must be a whole number"},
      {"eval_strategy: steps\nlogging_steps: 0\nlogging_strategy: epoch",
       "run.yaml:6: 'eval_strategy: steps' needs eval_steps or logging_steps above 0"},
      {"load_best_model_at_end: true\neval_strategy: epoch",
       "run.yaml:6: 'load_best_model_at_end: true' needs eval_strategy and save_strategy to be the "
       "same (or save_strategy best), but they are 'epoch' and 'steps'"},
      {"load_best_model_at_end: true\nsave_strategy: 'no'",
       "run.yaml:6: 'load_best_model_at_end: true' needs eval_strategy steps or epoch"},
      {"save_steps: 15\neval_steps: 10\neval_strategy: steps\nload_best_model_at_end: true",
       "run.yaml:6: 'load_best_model_at_end: true' needs save_steps to be a multiple"},
      {"save_steps: 0.5\neval_steps: 10\neval_strategy: steps\nload_best_model_at_end: true",
       "run.yaml:6: 'load_best_model_at_end: true' needs save_steps and eval_steps both"},
      {"lr_scheduler_type: reduce_lr_on_plateau",
       "run.yaml:6: 'lr_scheduler_type: reduce_lr_on_plateau' needs eval_strategy"},
      {"lr_scheduler_type: greedy", "run.yaml:6: 'lr_scheduler_type: greedy' needs eval_strategy"},
      {"dataloader_prefetch_factor: 2",
       "run.yaml:6: dataloader_prefetch_factor needs dataloader_num_workers above 0"},
  };
  for (const auto& [text, expected] : table) {
    EXPECT_THAT(problem(kGood + text + '\n'), StartsWith(expected)) << text;
  }
}

TEST(Validate, ComparesSharesInMillionths) {
  EXPECT_EQ(problem(kGood + "save_steps: 0.3\neval_steps: 0.1\neval_strategy: steps\n"
                            "load_best_model_at_end: true\n"),
            "");
}

TEST(Validate, BreaksOnEachOfOurRules) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"early_stopping_patience: 2", "run.yaml:6: early_stopping_patience needs eval_strategy"},
      {"early_stopping_threshold: 0.1", "run.yaml:6: early_stopping_threshold needs"},
      {"save_strategy: best", "run.yaml:6: 'save_strategy: best' needs eval_strategy"},
      {"warmup_steps: 1.5", "run.yaml:6: 'warmup_steps' must be a whole number"},
      {"eval_strategy: epoch\nvalidation_split_percentage: 0",
       "run.yaml:6: no text to evaluate on: set validation_file"},
      {"do_train: false", "run.yaml:6: do_train, do_eval and do_predict are all false"},
      {"lr_scheduler_kwargs: {power: 2}", "run.yaml:6: lr_scheduler_kwargs: 'linear' takes no"},
      {"lr_scheduler_type: cosine_with_min_lr",
       "run.yaml:6: 'lr_scheduler_type: cosine_with_min_lr' needs either min_lr or min_lr_rate"},
      {"lr_scheduler_type: warmup_stable_decay",
       "run.yaml:6: 'lr_scheduler_type: warmup_stable_decay' needs num_decay_steps"},
      {"packing: true\npad_to_max_length: true",
       "run.yaml:6: 'packing' and 'pad_to_max_length' exclude each other"},
      {"packing: true\ntrain_sampling_strategy: group_by_length",
       "run.yaml:6: 'packing' and 'train_sampling_strategy: group_by_length' exclude"},
      {"packing: true\ntask: multiple_choice", "run.yaml:6: 'packing' belongs to task mlm"},
      {"train_sampling_strategy: group_by_length\ntask: pretraining",
       "run.yaml:6: 'train_sampling_strategy: group_by_length' has nothing to group"},
  };
  for (const auto& [text, expected] : table) {
    EXPECT_THAT(problem(kGood + text + '\n'), StartsWith(expected)) << text;
  }
  EXPECT_GOLDEN(problem("train_file: a\nmodel_type: roberta\nmax_steps: 0\ntokenizer_name: t\n"));
}

TEST(Validate, AsksForAModelATokenizerAndText) {
  EXPECT_GOLDEN(problem("train_file: a\n"));
  EXPECT_GOLDEN(problem("model_name_or_path: m\n"));
  EXPECT_GOLDEN(problem("train_file: a\nmodel_type: roberta\n"));
  EXPECT_GOLDEN(problem("train_file: a\nmodel_name_or_path: m\nconfig_overrides: a=1\n"));
  EXPECT_GOLDEN(problem("train_file: []", Purpose::kEvaluate));
}

TEST(Validate, ReportsEveryBrokenRuleAtOnce) {
  const std::string message = problem("logging_steps: 0\nsave_strategy: best\n");
  EXPECT_THAT(message, HasSubstr("logging_steps above 0\n"));
  EXPECT_GOLDEN(message);
}

}  // namespace
}  // namespace finetune
