// SPDX-License-Identifier: MIT
#include "finetune/data/multiple_choice_dataset.h"
#include "task/multiple_choice/multiple_choice.h"
#include "task/setup/labelled_setup.h"

namespace finetune {
namespace {

// Sets up the task as run_swag does.
class MultipleChoiceSetup final : public LabelledSetup {
 public:
  explicit MultipleChoiceSetup(const SetupContext& context) : LabelledSetup(context, 1024) {}

  std::shared_ptr<const Dataset> read(Split split) override {
    MultipleChoiceOptions options;
    const ColumnNames columns = columns_of(split, RowTask::kMultipleChoice);
    options.context_column = columns.context_column;
    options.prefix_column = columns.text_column;
    options.choice_columns = columns.choice_columns;
    options.label_column = columns.label_column ? columns.label_column : args().label_column;
    return read_rows(split, options, build_multiple_choice_dataset);
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kMultipleChoice, config, seed(), device, options);
    auto task = make_multiple_choice_task(
        *model, device, {.label_smoothing_factor = args().label_smoothing_factor});
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    return {make_multiple_choice_metrics(),
            split == Split::kTest ? make_multiple_choice_files() : nullptr};
  }
};

}  // namespace

std::unique_ptr<TaskSetup> make_multiple_choice_setup(const SetupContext& context) {
  return std::make_unique<MultipleChoiceSetup>(context);
}

}  // namespace finetune
