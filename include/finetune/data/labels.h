// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "finetune/data/rows.h"
#include "finetune/data/token_cache.h"

namespace finetune {

// Names of labels and their numbers: transformers' id2label and label2id.
class LabelMap {
 public:
  LabelMap() = default;
  // By number. Throws Error(kData), which starts with `where`, for a name that is there twice.
  explicit LabelMap(std::vector<std::string> names, const std::string& where = "labels");
  // "LABEL_0", "LABEL_1", ...: what transformers writes where labels have no names.
  [[nodiscard]] static LabelMap numbered(int64_t size);

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(names_.size()); }
  [[nodiscard]] bool empty() const { return names_.empty(); }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] const std::string& name(int64_t number) const;  // Requires: 0 <= number < size()
  [[nodiscard]] std::optional<int64_t> find(std::string_view name) const;
  [[nodiscard]] bool is_numbered() const;  // names without meaning, such as LABEL_0

  // As run_ner: this map in the order of the model's names where those are the same names, else
  // unchanged. run_glue compares without case; so does this, and keeps the model's spelling.
  [[nodiscard]] LabelMap in_order_of(const std::vector<std::string>& model_names) const;
  // "'a', 'b', ...", shortened; for messages.
  [[nodiscard]] std::string list() const;

  friend bool operator==(const LabelMap& a, const LabelMap& b) { return a.names_ == b.names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, int64_t> numbers_;
};

// transformers' problem_type.
enum class ProblemType { kSingleLabel, kMultiLabel, kRegression };

// What the labels of a file are, found by reading it once.
struct LabelSurvey {
  ProblemType problem = ProblemType::kSingleLabel;
  LabelMap labels;      // sorted: numbers by value, text by code point; empty in regression
  int64_t outputs = 0;  // labels, or the numbers of a row in regression
};

// The label column where it is not named: "label", "labels" or "label_ids".
// Where `problem` is not given, as run_classification decides: lists are several labels (lists of
// fractions are several numbers), numbers of which one has a decimal point are a regression, all
// else is one label. A label's name is its text, its decimal number, "True" or "False".
// Files that were surveyed before and have not changed since are not read: `cache` keeps what was
// found. Throws Error(kData) with file:line for labels that are missing, mixed or of no use.
[[nodiscard]] LabelSurvey survey_labels(const std::vector<std::string>& files,
                                        const RowOptions& options,
                                        const std::optional<std::string>& label_column,
                                        std::optional<ProblemType> problem,
                                        const TokenCacheOptions& cache = {});

// The labels of words: a list in each row (see token_classification_dataset.h for the columns).
[[nodiscard]] LabelMap survey_word_labels(const std::vector<std::string>& files,
                                          const RowOptions& options,
                                          const std::optional<std::string>& text_column,
                                          const std::optional<std::string>& label_column,
                                          const TokenCacheOptions& cache = {});

}  // namespace finetune
