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

// Label names and their ids: transformers' id2label and label2id.
class LabelMap {
 public:
  LabelMap() = default;
  // `names` by id. Throws Error(kData) with prefix `where` for a duplicate name.
  explicit LabelMap(std::vector<std::string> names, const std::string& where = "labels");
  // Returns "LABEL_0", "LABEL_1", ...: transformers' names for unnamed labels.
  [[nodiscard]] static LabelMap numbered(int64_t size);

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(names_.size()); }
  [[nodiscard]] bool empty() const { return names_.empty(); }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] const std::string& name(int64_t number) const;  // Requires: 0 <= number < size()
  [[nodiscard]] std::optional<int64_t> find(std::string_view name) const;
  [[nodiscard]] bool is_numbered() const;  // names without meaning, such as LABEL_0

  // As in run_ner: returns this map in the order of the model's names if the names are the same,
  // else unchanged. Compares without case, as run_glue does, and keeps the model's spelling.
  [[nodiscard]] LabelMap in_order_of(const std::vector<std::string>& model_names) const;
  // Returns "'a', 'b', ...", shortened; for messages.
  [[nodiscard]] std::string list() const;

  friend bool operator==(const LabelMap& a, const LabelMap& b) { return a.names_ == b.names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, int64_t> numbers_;
};

// transformers' problem_type.
enum class ProblemType { kSingleLabel, kMultiLabel, kRegression };

// Properties of a file's labels, found by reading it once.
struct LabelSurvey {
  ProblemType problem = ProblemType::kSingleLabel;
  LabelMap labels;      // sorted: numbers by value, text by code point; empty for regression
  int64_t outputs = 0;  // number of labels, or for regression of values per row
  // The labels are numbers with a decimal point, but a few whole ones (1.0, 0.0), as of classes.
  bool are_whole = false;
};

// Reads the labels of `files`. Default label columns: "label", "labels" or "label_ids". Without
// `problem`, decides like run_classification: lists mean several labels (lists with fractions:
// several values), numbers with a decimal point in at least one of them mean regression, anything
// else is a single label. A label's name is its text, its decimal number, "True" or "False".
// Results are stored in `cache`, so unchanged files are not read again. Throws Error(kData) with
// file:line for missing, mixed or unusable labels, Error(kConfig) for a column that has
// nothing to learn.
[[nodiscard]] LabelSurvey survey_labels(const std::vector<std::string>& files,
                                        const RowOptions& options,
                                        const std::optional<std::string>& label_column,
                                        std::optional<ProblemType> problem,
                                        const TokenCacheOptions& cache = {});

// Reads the labels of words: a list in each row (columns: see token_classification_dataset.h).
[[nodiscard]] LabelMap survey_word_labels(const std::vector<std::string>& files,
                                          const RowOptions& options,
                                          const std::optional<std::string>& text_column,
                                          const std::optional<std::string>& label_column,
                                          const TokenCacheOptions& cache = {});

}  // namespace finetune
