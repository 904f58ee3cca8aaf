// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "finetune/export/export.h"

namespace finetune {

// Runs the model that is exported, as its run had it, and then the export on a built-in text, in
// float32, one after the other; each is in memory as a whole. `load` copies the export's weights
// into a model of `exported`, whose products are those of an export in int8 with `int8_products`.
[[nodiscard]] LogitsDifference compare_logits(const MergedModel& source,
                                              const ModelConfig& exported,
                                              const std::function<void(Model&)>& load,
                                              bool int8_products = false);

}  // namespace finetune
