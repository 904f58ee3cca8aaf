// SPDX-License-Identifier: MIT
#include "finetune/base/log.h"
#include "finetune/data/token_classification_dataset.h"
#include "train/task_setup.h"

namespace finetune {
namespace {

// As run_ner.
class TokenClassificationSetup final : public TaskSetup {
 public:
  explicit TokenClassificationSetup(const SetupContext& context)
      : context_(context),
        args_(context.config.args),
        max_seq_length_(sequence_length(context, 1024)),
        labels_(context.model.id2label, "config.json: id2label") {}

  std::shared_ptr<const Dataset> read(Split split) override {
    const SplitFiles files = split_files(context_.config, split);
    if (split == Split::kTrain) learn_from_data(files);
    TokenClassificationOptions options;
    static_cast<SampleOptions&>(options) = sample_options(context_, split, max_seq_length_);
    options.text_column = args_.text_column;
    options.label_column = args_.label_column;
    options.labels = labels_;
    options.label_all_tokens = args_.label_all_tokens;
    std::shared_ptr<const TokenClassificationDataset> data;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      data = build_token_classification_dataset(files.files, context_.tokenizer, options);
    });
    if (split == Split::kTest) test_data_ = data;
    log::info(files.what + " data: " + std::to_string(data->size()) + " samples, " +
              std::to_string(data->tokens()) + " tokens");
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_padding_collator(context_, max_seq_length_);
  }

  [[nodiscard]] ModelConfig complete(ModelConfig model) const override {
    model.id2label = labels_.names();
    return model;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device) const override {
    auto model = make_head_model(Head::kTokenClassification, config,
                                 static_cast<uint64_t>(args_.seed), device);
    auto task = make_token_classification_task(
        *model, device, {.label_smoothing_factor = args_.label_smoothing_factor});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    return {make_token_classification_metrics(labels_.names(), args_.return_entity_level_metrics),
            split == Split::kTest ? make_token_classification_files(test_data_, labels_.names())
                                  : nullptr};
  }

 private:
  void learn_from_data(const SplitFiles& files) {
    RowOptions options;
    options.key = files.key;
    labels_ = survey_word_labels(files.files, options, args_.text_column, args_.label_column);
    if (context_.model_is_trained) labels_ = labels_.in_order_of(context_.model.id2label);
    log::info("labels: " + labels_.list());
  }

  SetupContext context_;
  const TrainingArgs& args_;
  int64_t max_seq_length_;
  LabelMap labels_;
  std::shared_ptr<const TokenClassificationDataset> test_data_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_token_classification_setup(const SetupContext& context) {
  return std::make_unique<TokenClassificationSetup>(context);
}

}  // namespace finetune
