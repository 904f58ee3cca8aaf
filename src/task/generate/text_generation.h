// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"

namespace finetune {

[[nodiscard]] const Pipeline& text_generation_pipeline();
[[nodiscard]] std::unique_ptr<Predictor> make_text_generator(const std::string& folder,
                                                             const PredictOptions& options);

}  // namespace finetune
