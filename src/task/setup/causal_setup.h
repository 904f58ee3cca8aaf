// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/task/setup.h"

namespace finetune {

// What tasks that learn the next word have in common.
[[nodiscard]] std::shared_ptr<const Collator> make_causal_lm_collator(const SetupContext& context,
                                                                      int64_t max_seq_length);
[[nodiscard]] TaskSetup::Learner make_causal_lm_learner(const TaskOptions& args,
                                                        const ModelConfig& config,
                                                        c10::Device device,
                                                        const ModelOptions& options,
                                                        bool measures_entropy = false);

}  // namespace finetune
