// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "finetune/data/question_answering_dataset.h"
#include "task/question_answering/answer_files.h"
#include "task/question_answering/question_answering.h"
#include "task/setup/labelled_setup.h"

namespace finetune {
namespace {

// Sets up the task as run_qa does.
class QuestionAnsweringSetup final : public LabelledSetup {
 public:
  explicit QuestionAnsweringSetup(const SetupContext& context) : LabelledSetup(context, 384) {}

  // Long contexts become several windows.
  [[nodiscard]] int64_t truncation_length() const override { return 0; }

  std::shared_ptr<const Dataset> read(Split split) override {
    QuestionAnsweringOptions options;
    const ColumnNames columns = columns_of(split, RowTask::kQuestionAnswering);
    options.question_column = columns.text_column ? columns.text_column : args().text_column;
    options.context_column =
        columns.context_column ? columns.context_column : args().context_column;
    options.answer_column = columns.label_column ? columns.label_column : args().label_column;
    options.doc_stride = args().doc_stride;
    options.without_answer = args().version_2_with_negative;
    options.keep_questions = split != Split::kTrain;
    auto data = read_rows(split, options, build_question_answering_dataset, "windows");
    if (split == Split::kValidation) validation_data_ = data;
    if (split == Split::kTest) test_data_ = data;
    return data;
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device,
                                     const ModelOptions& options) const override {
    auto model = make_model(Head::kQuestionAnswering, config, seed(), device, options);
    auto task = make_question_answering_task(*model, device);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    FT_CHECK(split != Split::kTrain, "answers are looked for in what was read for it");
    auto answers = std::make_unique<AnswerFiles>(split == Split::kTest ? "predict" : "eval",
                                                 args().version_2_with_negative);
    const AnswerOptions options{.n_best_size = args().n_best_size,
                                .max_answer_length = args().max_answer_length,
                                .version_2_with_negative = args().version_2_with_negative,
                                .null_score_diff_threshold = args().null_score_diff_threshold};
    AnswerFiles* taker = answers.get();
    return {make_question_answering_metrics(
                split == Split::kTest ? test_data_ : validation_data_, options,
                [taker](const Answer& answer, const Question& question) {
                  taker->take(answer, question);
                }),
            std::move(answers)};
  }

 private:
  std::shared_ptr<const QuestionAnsweringDataset> validation_data_;
  std::shared_ptr<const QuestionAnsweringDataset> test_data_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_question_answering_setup(const SetupContext& context) {
  return std::make_unique<QuestionAnsweringSetup>(context);
}

}  // namespace finetune
