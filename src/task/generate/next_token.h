// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "task/generate/generation_config.h"

namespace finetune {

// Chooses the next token as transformers' logits processors do: the repetition penalty (Keskar et
// al. 2019, section 4.1) on every token of the text so far, then, for sampling, temperature, top_k
// (Fan et al. 2018) and top_p (Holtzman et al. 2020), each applied to the result of the one before.
class NextToken {
 public:
  explicit NextToken(const GenerationConfig& config) : config_(config) {}

  // `scores`: a finite logit for each token of the vocabulary; overwritten. `text`: all tokens so
  // far. `uniform`: the random number in [0, 1) for sampling. Of equally probable tokens the one
  // with the smaller id comes first.
  [[nodiscard]] int32_t choose(std::span<float> scores, std::span<const int32_t> text,
                               double uniform);

 private:
  void penalize(std::span<float> scores, std::span<const int32_t> text) const;
  [[nodiscard]] int32_t sample(std::span<const float> scores, double uniform);

  GenerationConfig config_;
  // Reused for the next token.
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace finetune
