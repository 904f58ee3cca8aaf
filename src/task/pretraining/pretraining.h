// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/metrics.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// BERT's pretraining: masked language modelling and, with use_nsp, next sentence prediction.

const TaskKeys& pretraining_keys();
const TaskDescriptor& pretraining_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_pretraining_setup(const SetupContext& context);

// `model` must outlive the task.
// Two terms: cross entropy over the masked words, and over the samples with a next-sentence label.
// As in transformers, the loss is the sum of both means. Label smoothing applies only to the first.
[[nodiscard]] std::unique_ptr<Task> make_pretraining_task(Model& model, c10::Device device,
                                                          const LossOptions& options);

// Computes masked_lm_accuracy and next_sentence_accuracy (fractions of correct predictions), and
// masked_lm_loss and next_sentence_loss (means over all targets).
[[nodiscard]] std::unique_ptr<Metrics> make_pretraining_metrics();

}  // namespace finetune
