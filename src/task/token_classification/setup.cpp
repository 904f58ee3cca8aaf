// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/token_classification_dataset.h"
#include "task/setup/labelled_setup.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

// Sets up the task as run_ner does.
class TokenClassificationSetup final : public LabelledSetup {
 public:
  explicit TokenClassificationSetup(const SetupContext& context)
      : LabelledSetup(context, 1024), labels_(labels_of_model(context)) {}

  std::shared_ptr<const Dataset> read(Split split) override {
    const ColumnNames columns = columns_of(split, RowTask::kTokenClassification);
    if (split == Split::kTrain) learn_from_data(split_files(context().options, split));
    TokenClassificationOptions options;
    options.text_column = columns.text_column;
    options.label_column = columns.label_column ? columns.label_column : args().label_column;
    options.labels = labels_;
    options.label_all_tokens = args().label_all_tokens;
    if (split == Split::kTrain)
      return read_rows(split, options, build_token_classification_samples);
    auto data = read_rows(split, options, build_token_classification_dataset);
    if (split == Split::kTest) test_data_ = data;
    return data;
  }

  void learn_from(const Dataset& train_data) override { weigh_classes(labels_, train_data); }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.id2label = labels_.names();
    return model;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kTokenClassification, config, seed(), device, options);
    auto task = make_token_classification_task(*model, device, loss_options(labels_));
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    return {make_token_classification_metrics(labels_.names(), args().return_entity_level_metrics),
            split == Split::kTest ? make_token_classification_files(test_data_, labels_.names())
                                  : nullptr};
  }

 private:
  void learn_from_data(const SplitFiles& files) {
    RowOptions options;
    options.key = files.key;
    options.replace_broken_utf8 = replaces_broken_utf8(args());
    options.reading = reading_options(args());
    const auto survey = [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      labels_ = survey_word_labels(files.files, options, args().text_column, args().label_column,
                                   context().cache);
    };
    show_reading(context().progress, files, survey, "find labels");
    if (context().model_is_trained) labels_ = in_order_of_model(context(), labels_);
    log::info("labels: " + labels_.list());
    if (labels_.size() == 1) {
      throw Error(ErrorKind::kConfig,
                  context().options.locations.where("train_file") +
                      ": train_file: the only label is '" + labels_.names().front() +
                      "', so that there is nothing to learn; check label_column");
    }
  }

  LabelMap labels_;
  std::shared_ptr<const TokenClassificationDataset> test_data_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_token_classification_setup(const SetupContext& context) {
  return std::make_unique<TokenClassificationSetup>(context);
}

}  // namespace finetune
