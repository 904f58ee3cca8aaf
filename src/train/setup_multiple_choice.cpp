// SPDX-License-Identifier: MIT
#include "finetune/base/log.h"
#include "finetune/data/multiple_choice_dataset.h"
#include "train/task_setup.h"

namespace finetune {
namespace {

// As run_swag.
class MultipleChoiceSetup final : public TaskSetup {
 public:
  explicit MultipleChoiceSetup(const SetupContext& context)
      : context_(context),
        args_(context.config.args),
        max_seq_length_(sequence_length(context, 1024)) {}

  std::shared_ptr<const Dataset> read(Split split) override {
    const SplitFiles files = split_files(context_.config, split);
    MultipleChoiceOptions options;
    static_cast<SampleOptions&>(options) = sample_options(context_, split, max_seq_length_);
    options.context_column = args_.context_column;
    options.prefix_column = args_.text_column;
    options.choice_columns = args_.choice_columns;
    options.label_column = args_.label_column;
    std::shared_ptr<const TokenDataset> data;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      data = build_multiple_choice_dataset(files.files, context_.tokenizer, options);
    });
    log::info(files.what + " data: " + std::to_string(data->size()) + " samples of " +
              std::to_string(data->choices()) + " choices, " + std::to_string(data->tokens()) +
              " tokens");
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_padding_collator(context_, max_seq_length_);
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device) const override {
    auto model =
        make_head_model(Head::kMultipleChoice, config, static_cast<uint64_t>(args_.seed), device);
    auto task = make_multiple_choice_task(*model, device,
                                          {.label_smoothing_factor = args_.label_smoothing_factor});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    return {make_multiple_choice_metrics(),
            split == Split::kTest ? make_multiple_choice_files() : nullptr};
  }

 private:
  SetupContext context_;
  const TrainingArgs& args_;
  int64_t max_seq_length_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_multiple_choice_setup(const SetupContext& context) {
  return std::make_unique<MultipleChoiceSetup>(context);
}

}  // namespace finetune
