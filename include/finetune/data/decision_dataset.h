// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "finetune/data/decision_prompt.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

// A question of a sample: where the head reads, and the probability of each option.
struct DecisionGroup {
  QuestionType type = QuestionType::kNoul;
  std::vector<int64_t> marks;  // DecisionPrompt::marks of the question
  float weight = 1.0F;
  std::vector<float> target;  // in the order of the prompt; empty: unknown, with `options`
  int64_t options = 0;
};

// The questions of a sequence are in its labels, one number for each token: how many there are,
// then of each its form (type and options), marks, weight and probabilities (floats by their bits).
// Returns false if the sequence has too few tokens.
[[nodiscard]] bool write_groups(const std::vector<DecisionGroup>& groups,
                                std::span<int32_t> labels);
[[nodiscard]] std::vector<DecisionGroup> read_groups(std::span<const int64_t> labels);

struct DecisionOptions : SampleOptions {
  std::shared_ptr<const DecisionPrompter> prompter;
  DecisionSettings settings = {};
  std::string identity;  // what prompter and settings do, as text: part of the cache's key
  // In how many orders the options of a choice are stored; 1: that of the rows.
  int64_t orders = 1;
};

struct DecisionCounts {
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t too_long = 0;    // questions left out: more than max_seq_length tokens, or unreadable
  int64_t unanswered = 0;  // questions left out: the row has no answer to them
};

// One sample for each prompt: for each question, or for all questions of a row; with its options in
// the order of the row.
class DecisionDataset final : public KeptSamples {
 public:
  // `rows`: sequences in several orders, of which a row may have fewer (empty ones follow).
  // `seed`: of the order that each epoch shows.
  DecisionDataset(std::shared_ptr<const SequenceDataset> rows, uint64_t seed);

  [[nodiscard]] int64_t choices() const override { return 1; }
  [[nodiscard]] int64_t tokens() const override { return counts_.tokens; }
  // In the order of an epoch: a function of seed, epoch and sample. All orders of a sample are
  // shown before one is shown again.
  [[nodiscard]] Example get_in_epoch(int64_t index, int64_t epoch) const;
  [[nodiscard]] const DecisionCounts& counts() const { return counts_; }

 private:
  int64_t orders_;
  uint64_t seed_;
  DecisionCounts counts_;
};

// Reads rows of
// - {"state", "questions", and "expected", "gold" or "answers": {name: answer}} (see
//   decision_questions.h), with "weight", a number or {name: number}, where one counts more;
// - or text, question, options ("a|b|c" or a list), answer and type (all text, as in CSV): a
//   question without options is a noul.
// Questions without an answer are left out, unless labels_required is false.
//
// Throws as build_chat_dataset does.
[[nodiscard]] std::shared_ptr<const DecisionDataset> build_decision_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer,
    const DecisionOptions& options, uint64_t seed);

// A request {"state", "questions"} of a row in either form; `where` begins messages. Throws
// Error(kData).
[[nodiscard]] nlohmann::ordered_json decision_request(const nlohmann::ordered_json& row,
                                                      const std::string& where);

}  // namespace finetune
