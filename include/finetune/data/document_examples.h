// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/documents.h"
#include "finetune/data/masking.h"
#include "finetune/data/pretraining_dataset.h"

namespace finetune {

struct ExamplePlan;
class ExamplePlans;

struct ExampleOptions {
  int64_t max_seq_length = 512;  // tokens of an example, special tokens included
  bool next_sentence = true;     // pairs of segments; else one segment an example
  double short_seq_prob = 0.1;
  int64_t dupe_factor = 1;
  std::optional<int64_t> max_predictions;  // unset: mlm_probability of max_seq_length
  std::optional<int64_t> max_samples;
  int32_t cls_id = -1;
  int32_t sep_id = -1;
  MaskingOptions masking = {};     // its seed decides the pairs too
  std::string key = "train_file";  // the configuration key that errors name

  // Special tokens as the tokenizer names them: cls and sep, or bos and eos. Throws Error(kData)
  // where one is missing.
  [[nodiscard]] static ExampleOptions from(const Tokenizer& tokenizer, bool whole_words);

  // Tokens of text in an example at most, and of a sentence, which is never cut then: a pair has
  // room for one of each document. Throws Error(kConfig) where max_seq_length leaves no room.
  [[nodiscard]] int64_t room() const;
  [[nodiscard]] int64_t longest_sentence() const;
};

// Examples as BERT's create_pretraining_data makes them, drawn from tokenised documents without any
// file. Where a document is cut into segments, and which of them is followed by its own successor
// (one half) or by a text of another document, is a function of (seed, repetition, document): each
// repetition, of which an epoch has dupe_factor, has its own. So the number of samples never
// changes. Masks are a function of (seed, epoch, sample), in evaluation of (seed, sample), so each
// epoch has fresh ones.
//
// Beyond theirs: nothing is lost by cutting. A segment ends before a sentence that has no room, so
// in each repetition every token of every document stands once in a first or true second segment.
// Only the text of another document is cut, at its end.
class DocumentExamples final : public PretrainingDataset {
 public:
  // Throws Error(kData) where pairs are asked for and there is one document only, and Interrupted.
  DocumentExamples(Documents documents, const ExampleOptions& options, const ShowStep& show = {});
  ~DocumentExamples() override;

  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return extent_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  void make(int64_t index, const SampleKey& mask, PretrainingExample& example) const override;

  [[nodiscard]] int64_t documents() const { return documents_.size(); }
  [[nodiscard]] int64_t tokens() const { return documents_.token_count(); }
  [[nodiscard]] const ExampleOptions& options() const { return options_; }
  [[nodiscard]] int64_t max_predictions() const { return max_predictions_; }

 private:
  void make_unmasked(const ExamplePlan& plan, PretrainingExample& example) const;
  void measure(const ShowStep& show);

  Documents documents_;
  ExampleOptions options_;
  int64_t max_predictions_;
  std::unique_ptr<const ExamplePlans> plans_;
  DatasetExtent extent_;
  std::string fingerprint_;
};

}  // namespace finetune
