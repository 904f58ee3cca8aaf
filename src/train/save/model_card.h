// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/session/training_run.h"

namespace finetune {

// Returns the model card of the finished model: Hugging Face's metadata block (base model, task,
// metrics of the evaluation) and the hyperparameters, data files and versions as Markdown. It
// contains no times, so that a rebuilt model has the same card.
[[nodiscard]] std::string model_card(const TrainingRun& run,
                                     const nlohmann::ordered_json& evaluation);

// Whether a card may be written: a README.md of the user is never replaced.
[[nodiscard]] bool may_write_model_card(FileSystem& files, const std::string& folder);

}  // namespace finetune
