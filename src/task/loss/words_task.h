// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/task/metrics.h"
#include "finetune/task/task.h"

namespace finetune {

// Tasks of a head over the vocabulary: a batch's labels say which words are learned at which
// positions. `model` must outlive the task.

// Evaluates whole logits, of which masked language modelling has few.
[[nodiscard]] std::unique_ptr<Task> make_masked_lm_task(Model& model, c10::Device device,
                                                        const LossOptions& options);
// For batches whose labels are the next tokens.
[[nodiscard]] std::unique_ptr<Task> make_causal_lm_task(Model& model, c10::Device device,
                                                        const LossOptions& options);

// Computes `accuracy`: the fraction of learned words whose most probable token is correct.
[[nodiscard]] std::unique_ptr<Metrics> make_masked_lm_metrics(const char* name = "accuracy");

}  // namespace finetune
