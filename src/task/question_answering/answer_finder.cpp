// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <numeric>

#include "finetune/base/error.h"
#include "task/question_answering/answers.h"

namespace finetune {
namespace {

// A strict order also for NaN, which a diverged model returns: NaN comes first, as in a reversed
// numpy argsort.
bool is_better(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

// Returns the positions of the `count` best logits, best first; of equal logits the later one
// first.
std::vector<size_t> best_positions(std::span<const float> logits, int64_t count) {
  std::vector<size_t> positions(logits.size());
  std::iota(positions.begin(), positions.end(), size_t{0});
  const auto size = std::min<size_t>(positions.size(), static_cast<size_t>(count));
  std::partial_sort(positions.begin(), positions.begin() + static_cast<ptrdiff_t>(size),
                    positions.end(), [&](size_t a, size_t b) {
                      if (is_better(logits[a], logits[b])) return true;
                      if (is_better(logits[b], logits[a])) return false;
                      return a > b;
                    });
  positions.resize(size);
  return positions;
}

std::string text_at(std::string_view context, const TextRange& range) {
  const auto size = static_cast<int64_t>(context.size());
  const int64_t begin = std::clamp<int64_t>(range.begin, 0, size);
  const int64_t end = std::clamp<int64_t>(range.end, begin, size);
  return std::string(context.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
}

}  // namespace

void AnswerFinder::add(std::span<const float> start_logits, std::span<const float> end_logits,
                       std::span<const std::optional<TextRange>> tokens) {
  FT_CHECK(!start_logits.empty() && start_logits.size() == end_logits.size(), "logits of a row");
  // "No answer" needs all windows to agree, so the lowest of their scores counts.
  const float null_score = start_logits[0] + end_logits[0];
  if (!null_ || null_->score > null_score) {
    null_ = Candidate{{}, null_score, start_logits[0], end_logits[0]};
  }
  const std::vector<size_t> ends = best_positions(end_logits, options_.n_best_size);
  for (const size_t start : best_positions(start_logits, options_.n_best_size)) {
    if (start >= tokens.size() || !tokens[start]) continue;
    for (const size_t end : ends) {
      if (end >= tokens.size() || !tokens[end] || end < start) continue;
      if (static_cast<int64_t>(end - start) >= options_.max_answer_length) continue;
      candidates_.push_back({{tokens[start]->begin, tokens[end]->end},
                             start_logits[start] + end_logits[end],
                             start_logits[start],
                             end_logits[end]});
    }
  }
  keep_the_best();
}

void AnswerFinder::keep_the_best() {
  std::stable_sort(
      candidates_.begin(), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return is_better(a.score, b.score); });
  const auto count = static_cast<size_t>(options_.n_best_size);
  if (candidates_.size() > count) candidates_.resize(count);
}

Answer AnswerFinder::finish(std::string_view id, std::string_view context) {
  const bool may_be_null = options_.version_2_with_negative;
  const Candidate null = null_.value_or(Candidate{});
  if (may_be_null) {
    candidates_.push_back(null);
    keep_the_best();
    const bool kept = std::any_of(candidates_.begin(), candidates_.end(),
                                  [](const Candidate& c) { return c.range == TextRange{}; });
    if (!kept) candidates_.push_back(null);
  }
  Answer answer{.id = std::string(id), .text = {}, .n_best = {}, .null_odds = {}};
  std::vector<double> scores;
  for (const Candidate& candidate : candidates_) {
    answer.n_best.push_back({.text = text_at(context, candidate.range),
                             .range = candidate.range,
                             .start_logit = candidate.start_logit,
                             .end_logit = candidate.end_logit});
    scores.push_back(static_cast<double>(candidate.score));
  }
  candidates_.clear();
  null_.reset();

  const auto has_text = [](const AnswerCandidate& candidate) { return !candidate.text.empty(); };
  auto best = std::find_if(answer.n_best.begin(), answer.n_best.end(), has_text);
  if (best == answer.n_best.end() && (may_be_null || answer.n_best.size() < 2)) {
    answer.n_best.insert(answer.n_best.begin(), {.text = "empty"});  // run_qa's placeholder
    scores.insert(scores.begin(), 0.0);
    best = answer.n_best.begin();
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  for (size_t i = 0; i < scores.size(); ++i) answer.n_best[i].probability = scores[i] / sum;

  if (!may_be_null) {
    answer.text = answer.n_best.front().text;
    return answer;
  }
  const float odds = null.score - best->start_logit - best->end_logit;
  answer.null_odds = static_cast<double>(odds);
  if (!(*answer.null_odds > options_.null_score_diff_threshold)) answer.text = best->text;
  return answer;
}

}  // namespace finetune
