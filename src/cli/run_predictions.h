// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/run_folder.h"

namespace finetune::cli {

// Returns the confusion matrix of a classifier on a predicted test file with labels: {"labels",
// "counts" (a row for each true label), "worst" (the first mistakes with their text), "source"}.
// Null if predictions, labels or the test file are missing.
[[nodiscard]] nlohmann::ordered_json confusion_of(const RunFolder& run,
                                                  const nlohmann::ordered_json& label_names);

}  // namespace finetune::cli
