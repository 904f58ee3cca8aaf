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
  bool next_sentence = true;     // pairs of segments; false: one segment per example
  double short_seq_prob = 0.1;
  int64_t dupe_factor = 1;
  std::optional<int64_t> max_predictions;  // unset: mlm_probability x max_seq_length
  std::optional<int64_t> max_samples;
  int32_t cls_id = -1;
  int32_t sep_id = -1;
  MaskingOptions masking = {};     // its seed also determines the pairs
  std::string key = "train_file";  // the configuration key that errors name

  // Takes the special tokens from the tokenizer: cls and sep, or bos and eos. Throws Error(kData)
  // if one is missing.
  [[nodiscard]] static ExampleOptions from(const Tokenizer& tokenizer, bool whole_words);

  // Maximum number of text tokens in an example, and in a sentence, so that no sentence is
  // truncated: a pair has room for one sentence of each document. Both throw Error(kConfig) if
  // max_seq_length is too small.
  [[nodiscard]] int64_t room() const;
  [[nodiscard]] int64_t longest_sentence() const;
};

// Examples as BERT's create_pretraining_data makes them, drawn from tokenised documents without
// intermediate files. An epoch has dupe_factor repetitions. The split of a document into segments,
// and the choice whether a segment's partner is its successor (one half) or text of another
// document, are functions of (seed, repetition, document), so the number of samples never changes.
// Masks are functions of (seed, epoch, sample), in evaluation of (seed, sample), so they differ
// between training epochs.
//
// Unlike the original, the split loses no token: a segment ends before a sentence that does not
// fit, so in each repetition every token of every document is in exactly one first segment or true
// second segment. Only text of another document is truncated, at its end.
class DocumentExamples final : public PretrainingDataset {
 public:
  // Throws Error(kData) if pairs are requested and there is only one document, and Interrupted.
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
