// SPDX-License-Identifier: MIT
#include "task/generate/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace finetune {

int32_t NextToken::choose(std::span<float> scores, std::span<const int32_t> text, double uniform) {
  if (config_.repetition_penalty != 1.0) penalize(scores, text);
  if (config_.do_sample) return sample(scores, uniform);
  return static_cast<int32_t>(std::ranges::max_element(scores) - scores.begin());
}

void NextToken::penalize(std::span<float> scores, std::span<const int32_t> text) const {
  const auto penalty = static_cast<float>(config_.repetition_penalty);
  for (const int32_t id : std::set<int32_t>(text.begin(), text.end())) {
    float& score = scores[static_cast<size_t>(id)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

int32_t NextToken::sample(std::span<const float> scores, double uniform) {
  order_.resize(scores.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto score = [&](int32_t id) { return scores[static_cast<size_t>(id)]; };
  const auto comes_first = [&](int32_t a, int32_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  };
  const auto most = config_.top_k > 0
                        ? std::min<size_t>(order_.size(), static_cast<size_t>(config_.top_k))
                        : order_.size();
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(most),
                    order_.end(), comes_first);
  order_.resize(most);
  weights_.clear();
  double sum = 0.0;
  for (const int32_t id : order_) {
    weights_.push_back(std::exp((score(id) - score(order_.front())) / config_.temperature));
    sum += weights_.back();
  }
  // Keeps the smallest set of most probable tokens whose sum reaches top_p.
  double kept = 0.0;
  size_t count = 0;
  while (count < order_.size() && (count == 0 || kept < config_.top_p * sum)) {
    kept += weights_[count++];
  }
  double rest = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    rest -= weights_[i];
    if (rest < 0) return order_[i];
  }
  return order_[count - 1];
}

}  // namespace finetune
