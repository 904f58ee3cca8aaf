// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/task/predictor.h"

namespace finetune {

// One class per task; see make_predictor().
[[nodiscard]] std::unique_ptr<Predictor> make_fill_mask(const std::string& folder,
                                                        const PredictOptions& options);
[[nodiscard]] std::unique_ptr<Predictor> make_text_classification(const std::string& folder,
                                                                  const PredictOptions& options);
[[nodiscard]] std::unique_ptr<Predictor> make_token_classification(const std::string& folder,
                                                                   const PredictOptions& options);
[[nodiscard]] std::unique_ptr<Predictor> make_question_answering(const std::string& folder,
                                                                 const PredictOptions& options);
[[nodiscard]] std::unique_ptr<Predictor> make_multiple_choice(const std::string& folder,
                                                              const PredictOptions& options);

}  // namespace finetune
