// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Causal language modelling, as in run_clm.

const TaskKeys& causal_lm_keys();
const TaskDescriptor& causal_lm_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_causal_lm_setup(const SetupContext& context);

// For batches whose labels are the next tokens. `model` must outlive the task.
[[nodiscard]] std::unique_ptr<Task> make_causal_lm_task(Model& model, c10::Device device,
                                                        const LossOptions& options);

// What sft has in common with clm.
[[nodiscard]] const Pipeline& text_generation_pipeline();
[[nodiscard]] std::shared_ptr<const Collator> make_causal_lm_collator(const SetupContext& context,
                                                                      int64_t max_seq_length);
[[nodiscard]] TaskSetup::Learner make_causal_lm_learner(const TrainingArgs& args,
                                                        const ModelConfig& config,
                                                        c10::Device device,
                                                        const ModelOptions& options,
                                                        bool measures_entropy = false);

[[nodiscard]] std::unique_ptr<Predictor> make_text_generator(const std::string& folder,
                                                             const PredictOptions& options);

}  // namespace finetune
