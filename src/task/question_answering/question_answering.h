// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "finetune/data/question_answering_dataset.h"
#include "finetune/task/metrics.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"
#include "task/question_answering/answers.h"

namespace finetune {

// Finds the span of a context that answers a question, as in run_qa.

const TaskKeys& question_answering_keys();
const TaskDescriptor& question_answering_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_question_answering_setup(const SetupContext& context);

// `model` must outlive the task.
// Two terms of weight one half: cross entropy of the answer's first and of its last token over the
// positions of a row. As in transformers, a position at or after the batch's length is ignored and
// a negative one means 0. kIgnoredLabel is also ignored.
[[nodiscard]] std::unique_ptr<Task> make_question_answering_task(Model& model, c10::Device device);

// exact_match and f1 of SQuAD 1, or with version_2_with_negative exact, f1, total, HasAns_*,
// NoAns_* and best_* of SQuAD 2, in percent. `data` was made with keep_questions; the batches'
// samples must be its windows in order. `take`, where it is set, gets each answer and its question
// as soon as the question's last window was added.
[[nodiscard]] std::unique_ptr<Metrics> make_question_answering_metrics(
    std::shared_ptr<const QuestionAnsweringDataset> data, const AnswerOptions& options,
    std::function<void(const Answer&, const Question&)> take = {});

[[nodiscard]] std::unique_ptr<Predictor> make_question_answering(const std::string& folder,
                                                                 const PredictOptions& options);

}  // namespace finetune
