// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// Computes answers from the logits of windows (run_qa's post-processing), and the metrics of SQuAD.

// The arguments of run_qa.
struct AnswerOptions {
  int64_t n_best_size = 20;
  int64_t max_answer_length = 30;  // in tokens
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;
};

// One of the n best answers, as in nbest_predictions.json.
struct AnswerCandidate {
  std::string text;
  TextRange range = {};  // of the context; empty for no answer
  float start_logit = 0.0F;
  float end_logit = 0.0F;
  double probability = 0.0;
};

struct Answer {
  std::string id;
  std::string text;                     // predictions.json
  std::vector<AnswerCandidate> n_best;  // nbest_predictions.json, best first
  std::optional<double> null_odds;      // null_odds.json; with version_2_with_negative
};

// Finds one question's answer. Keeps the n best candidates of the windows so far.
class AnswerFinder {
 public:
  explicit AnswerFinder(const AnswerOptions& options) : options_(options) {}

  // Logits of the window's row, padding included, and for each token its byte range in the context;
  // nullopt for tokens outside the context. The list may be shorter than the row.
  void add(std::span<const float> start_logits, std::span<const float> end_logits,
           std::span<const std::optional<TextRange>> tokens);
  // Returns the answer of the windows since the last call. Of equal logits the later position wins.
  [[nodiscard]] Answer finish(std::string_view id, std::string_view context);

 private:
  struct Candidate {
    TextRange range = {};
    float score = 0.0F;
    float start_logit = 0.0F;
    float end_logit = 0.0F;
  };

  void keep_the_best();

  AnswerOptions options_;
  std::vector<Candidate> candidates_;
  std::optional<Candidate> null_;
};

// SQuAD's normalisation: lower case, without ASCII punctuation and English articles, single spaces.
// Text of a language without spaces stays one word. Requires: well-formed UTF-8.
[[nodiscard]] std::string normalize_answer(std::string_view text);

// Metrics of SQuAD 1 or 2.
class AnswerScores {
 public:
  explicit AnswerScores(bool version_2) : version_2_(version_2) {}

  // A question without right answers counts as unanswerable in version 2, and is skipped in version
  // 1.
  void add(std::string_view answer, std::span<const std::string> right_answers);
  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const;

 private:
  struct Sums {
    double exact = 0.0;
    double f1 = 0.0;
    int64_t total = 0;
  };

  bool version_2_;
  Sums has_answer_;
  Sums no_answer_;
  // Gain of the questions so far over leaving all unanswered, and the maximum of that gain.
  Sums gain_, best_gain_;
};

}  // namespace finetune
