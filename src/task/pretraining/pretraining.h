// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/metrics.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// BERT's pretraining: masked words and, with use_nsp, the next sentence.

const TaskKeys& pretraining_keys();
const TaskDescriptor& pretraining_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_pretraining_setup(const SetupContext& context);

// `model` must outlive the task.
// Two terms: cross entropy over the masked words, and over the samples whose next sentence is asked
// for. As in transformers the sum of both means is the loss. Only the first is smoothed.
[[nodiscard]] std::unique_ptr<Task> make_pretraining_task(PretrainingModel& model,
                                                          c10::Device device,
                                                          const LossOptions& options);

// masked_lm_accuracy and next_sentence_accuracy (shares of the right ones), masked_lm_loss and
// next_sentence_loss, the means over all targets.
[[nodiscard]] std::unique_ptr<Metrics> make_pretraining_metrics();

}  // namespace finetune
