// SPDX-License-Identifier: MIT
// A task that is registered from outside the program: its parts and its two table entries are in
// this file. It is trained, evaluated and used for prediction like the built-in tasks.
// docs/extending.md explains it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/config/dump.h"
#include "finetune/config/validate.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"
#include "finetune/tokenizer/train_vocabulary.h"
#include "finetune/train/first_batch.h"
#include "finetune/train/run.h"
#include "support/golden.h"
#include "support/paths.h"
#include "task/metrics/class_metrics.h"
#include "task/sequence_classification/sequence_classification.h"
#include "task/setup/labelled_setup.h"
#include "task/setup/setup_columns.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

// ---- keys.cpp: keys of the configuration.

const TaskKeys& text_length_keys() {
  static const TaskKeys keys = {.name = "text_length",
                                .title = "Teaches a model how many tokens a text has.",
                                .yaml =
                                    "task: text_length\noutput_dir: run\ntrain_file: train.jsonl\n"
                                    "validation_file: validation.jsonl\n",
                                .keys = {"do_predict", "test_file"},
                                .metric_names = {"mse"},
                                .metrics_depend_on_data = false,
                                .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

// ---- setup.cpp: reading of rows, head and metrics.

// Texts whose target is their number of tokens, in tens.
class TextLengths final : public Dataset {
 public:
  explicit TextLengths(std::shared_ptr<const SequenceDataset> texts) : texts_(std::move(texts)) {
    for (int64_t i = 0; i < texts_->size(); ++i) {
      tens_.push_back(static_cast<float>(texts_->length(i)) / 10.0F);
    }
  }
  [[nodiscard]] int64_t size() const override { return texts_->size(); }
  [[nodiscard]] int64_t tokens() const { return texts_->tokens(); }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override {
    Example example;
    example.input_ids = texts_->get(index, choice).input_ids;
    example.values = std::span(tens_).subspan(static_cast<size_t>(index), 1);
    return example;
  }
  [[nodiscard]] std::string fingerprint() const override { return texts_->fingerprint(); }

 private:
  std::shared_ptr<const SequenceDataset> texts_;
  std::vector<float> tens_;
};

class TextLengthSetup final : public LabelledSetup {
 public:
  explicit TextLengthSetup(const SetupContext& context) : LabelledSetup(context, 128) {}

  std::shared_ptr<const Dataset> read(Split split) override {
    ClassificationOptions options;
    options.text_column = find_split_columns(context(), files_to_read(context(), split),
                                             RowTask::kText, LabelUse::kUnused)
                              .text_column;
    const auto build = [](const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          ClassificationOptions texts) {
      texts.problem = ProblemType::kRegression;  // a number for each text
      texts.labels_required = false;             // of which the rows have none
      return std::make_shared<const TextLengths>(
          build_classification_dataset(files, tokenizer, texts));
    };
    return read_rows(split, options, build);
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.id2label = {"tens of tokens"};
    model.problem_type = "regression";
    return model;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kSequenceClassification, config, seed(), device, options);
    auto task = make_sequence_classification_task(*model, device, ProblemType::kRegression, {});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    return {
        make_sequence_classification_metrics(ProblemType::kRegression, {"mse"}),
        split == Split::kTest ? make_classification_files(ProblemType::kRegression, {}) : nullptr};
  }
};

// ---- text_length.cpp: the table entry.

const TaskDescriptor& text_length_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = text_length_keys(),
      .rows = RowTask::kText,
      .head = [](const TaskArgs&) { return std::optional(Head::kSequenceClassification); },
      .make_setup = [](const SetupContext& context) -> std::unique_ptr<TaskSetup> {
        return std::make_unique<TextLengthSetup>(context);
      },
      .pipeline = {.name = "text-length",
                   .class_suffix = "ForSequenceClassification",
                   .make_predictor = make_text_classification}};
  return descriptor;
}

// Replaces the lines in src/config/keys/tasks.cpp and src/task/tasks.cpp.
const bool kIsAdded = [] {
  add_task(text_length_descriptor());
  return true;
}();

// ---- What users run.

class ExtraTask : public ::testing::Test {
 protected:
  ExtraTask() {
    const std::string text = source_dir() + "/tests/fixtures/text/lighthouse.txt";
    const TrainedVocabulary vocabulary = train_byte_level_bpe({text}, {.vocab_size = 300});
    for (const auto& [name, content] : make_tokenizer_files(vocabulary, 32)) {
      folder_.write(name, content);
    }
    std::string rows;
    for (int i = 0; i < 24; ++i) {
      rows += R"({"text": ")";
      for (int word = 0; word < 1 + i % 6; ++word) rows += "the light ";
      rows += "\"}\n";
    }
    folder_.write("rows.jsonl", rows);
  }
  ~ExtraTask() override { log::set_level("info"); }  // a run sets its own

  [[nodiscard]] std::string out() const { return folder_ / "out"; }
  [[nodiscard]] LoadedConfig config(const std::string& more = "") const {
    const std::string rows = folder_ / "rows.jsonl";
    return load_config_text(
        "task: text_length\noutput_dir: " + out() + "\ncache_dir: " + folder_ / "cache" +
            "\nmodel_type: bert\ntokenizer_name: " + folder_.path() + "\ntrain_file: " + rows +
            "\nvalidation_file: " + rows + "\ntest_file: " + rows +
            "\ndo_eval: true\ndo_predict: true\nmax_steps: 40\nlearning_rate: 0.01\n"
            "per_device_train_batch_size: 8\ndataloader_num_workers: 0\nreport_to: none\n"
            "log_level: error\nuse_cpu: true\nconfig_overrides: {num_hidden_layers: 1, "
            "num_attention_heads: 2, hidden_size: 16, intermediate_size: 32, "
            "max_position_embeddings: 32}\n" +
            more,
        "run.yaml", {});
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ExtraTask, IsTrainedEvaluatedAndPredicted) {
  ASSERT_EQ(run_training(config(), {}), 0);
  const auto metrics = run_evaluation(config(), EvaluatedModel::kTrained);
  // An untrained model predicts about 0: the mean of the squared values is above 5.
  EXPECT_LT(metrics.at("eval_mse").get<double>(), 2.0);
  const std::string predictions = FileSystem::local().read_all(out() + "/predict_results.txt");
  EXPECT_EQ(std::ranges::count(predictions, '\n'), 25);

  const auto predictor =
      parse_predict_task("text-length").pipeline.make_predictor(out(), {.use_cpu = true});
  const auto answers = predictor->answer({{.where = "text 1", .text = "the light"}});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].at(0).at("label"), "tens of tokens");
  EXPECT_EQ(trained_data(text_length_descriptor(), out()).columns, ColumnNames{});
}

TEST_F(ExtraTask, IsExplainedAndCheckedAsTheOthers) {
  const LoadedConfig initial = load_config_text(initial_yaml("text_length"), "init.yaml", {});
  EXPECT_EQ(initial.args.task, "text_length");
  EXPECT_GOLDEN(message_of<Error>([&] { validate(config("use_nsp: false\n"), Purpose::kTrain); }));
  EXPECT_GOLDEN(
      message_of<Error>([&] { validate(config("metric_for_best_model: f1\n"), Purpose::kTrain); }));
  EXPECT_THAT(message_of<Error>([&] { (void)load_config_text("task: lengths\n", "a.yaml", {}); }),
              HasSubstr("text_length"));
  EXPECT_THAT(json_schema(), HasSubstr("\"text_length\""));
  EXPECT_GOLDEN(describe_first_batch(config()));
}

}  // namespace
}  // namespace finetune
