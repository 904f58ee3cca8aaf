// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/predictor.h"

namespace finetune {

[[nodiscard]] std::unique_ptr<Predictor> make_fill_mask(const std::string& folder,
                                                        const PredictOptions& options);

}  // namespace finetune
