// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "task/clm/generation_config.h"

namespace finetune {

// Which token follows, as transformers' processors choose: the repetition penalty (Keskar et al.
// 2019, section 4.1) on every token that the text has, then for sampling temperature, top_k (Fan et
// al. 2018) and top_p (Holtzman et al. 2020), each on what the one before it left.
class NextToken {
 public:
  explicit NextToken(const GenerationConfig& config) : config_(config) {}

  // `scores`: a logit for each token of the vocabulary, finite; overwritten. `text`: all tokens so
  // far. `uniform`: a number in [0, 1) that chooses when sampling. Of equally probable tokens the
  // one with the smaller id comes first.
  [[nodiscard]] int32_t choose(std::span<float> scores, std::span<const int32_t> text,
                               double uniform);

 private:
  void penalize(std::span<float> scores, std::span<const int32_t> text) const;
  [[nodiscard]] int32_t sample(std::span<const float> scores, double uniform);

  GenerationConfig config_;
  // Memory that the next token uses again.
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace finetune
