// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/data/question_answering_dataset.h"
#include "train/task_setup.h"

namespace finetune {
namespace {

// As run_qa.
class QuestionAnsweringSetup final : public TaskSetup {
 public:
  explicit QuestionAnsweringSetup(const SetupContext& context)
      : context_(context),
        args_(context.config.args),
        max_seq_length_(sequence_length(context, 384)) {}

  std::shared_ptr<const Dataset> read(Split split) override {
    const SplitFiles files = split_files(context_.config, split);
    QuestionAnsweringOptions options;
    static_cast<SampleOptions&>(options) = sample_options(context_, split, max_seq_length_);
    options.question_column = args_.text_column;
    options.context_column = args_.context_column;
    options.answer_column = args_.label_column;
    options.doc_stride = args_.doc_stride;
    options.without_answer = args_.version_2_with_negative;
    options.keep_questions = split != Split::kTrain;
    std::shared_ptr<const QuestionAnsweringDataset> data;
    show_reading(context_.progress, files, [&](const std::function<void(double)>& progress) {
      options.progress = progress;
      data = build_question_answering_dataset(files.files, context_.tokenizer, options);
    });
    if (split == Split::kValidation) validation_data_ = data;
    if (split == Split::kTest) test_data_ = data;
    log::info(files.what + " data: " + std::to_string(data->size()) + " windows, " +
              std::to_string(data->tokens()) + " tokens");
    return data;
  }

  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override {
    return make_padding_collator(context_, max_seq_length_);
  }

  [[nodiscard]] Learner make_learner(const ModelConfig& config, c10::Device device) const override {
    auto model = make_head_model(Head::kQuestionAnswering, config,
                                 static_cast<uint64_t>(args_.seed), device);
    auto task = make_question_answering_task(*model, device);
    return {std::move(model), std::move(task)};
  }

  [[nodiscard]] Results make_results(Split split) const override {
    FT_CHECK(split != Split::kTrain, "answers are looked for in what was read for it");
    auto answers = std::make_unique<AnswerFiles>(split == Split::kTest ? "predict" : "eval",
                                                 args_.version_2_with_negative);
    const AnswerOptions options{.n_best_size = args_.n_best_size,
                                .max_answer_length = args_.max_answer_length,
                                .version_2_with_negative = args_.version_2_with_negative,
                                .null_score_diff_threshold = args_.null_score_diff_threshold};
    AnswerFiles* taker = answers.get();
    return {make_question_answering_metrics(split == Split::kTest ? test_data_ : validation_data_,
                                            options,
                                            [taker](const Answer& answer) { taker->take(answer); }),
            std::move(answers)};
  }

 private:
  SetupContext context_;
  const TrainingArgs& args_;
  int64_t max_seq_length_;
  std::shared_ptr<const QuestionAnsweringDataset> validation_data_;
  std::shared_ptr<const QuestionAnsweringDataset> test_data_;
};

}  // namespace

std::unique_ptr<TaskSetup> make_question_answering_setup(const SetupContext& context) {
  return std::make_unique<QuestionAnsweringSetup>(context);
}

}  // namespace finetune
