// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/model/model_config.h"
#include "finetune/task/predictor.h"

namespace finetune {

// How text is generated; names and defaults are those of transformers' generate(), but for
// max_new_tokens, which is its pipeline's.
struct GenerationConfig {
  int64_t max_new_tokens = 256;
  bool do_sample = false;  // else the most probable token
  double temperature = 1.0;
  int64_t top_k = 50;  // 0: all
  double top_p = 1.0;
  double repetition_penalty = 1.0;
  std::vector<int64_t> eos_token_ids = {};  // each ends a text
};

// The model's own, from generation_config.json (the end of text from config.json where it does not
// say), with what the user asks for. Names of settings that change what is generated but are not
// known here are logged. Throws Error(kData) for a damaged file, Error(kUsage) for an option.
[[nodiscard]] GenerationConfig read_generation_config(const std::string& folder,
                                                      const ModelConfig& model,
                                                      const PredictOptions& options);

}  // namespace finetune
