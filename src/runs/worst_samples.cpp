// SPDX-License-Identifier: MIT
// The samples that a run predicted worst, with their texts.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/report/figure_text.h"
#include "runs/predictions.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostWorst = 20;
constexpr uint64_t kMostBytes = uint64_t{64} << 20;

struct Measure {
  const char* name;
  const char* title;  // of the table
};
constexpr Measure kMeasures[] = {
    {"probability", "lowest probability of the right label"},
    {"loss", "highest mean loss"},
    {"error", "largest absolute error"},
    {"f1", "lowest F1 in percent, the surest answers first"},
    {"rank", "queries whose nearest text is wrong; the rank of the right one, the last first"},
};

std::string measure_title(const Json& measure) {
  for (const Measure& known : kMeasures) {
    if (measure == known.name) return known.title;
  }
  return plain_text_of(measure);
}

void append(const Json& value, const std::string& separator, std::string& text) {
  if (value.is_null()) return;
  text += (text.empty() ? "" : separator) + plain_text_of(value);
}

std::string joined_words(const Json& words) {
  if (!words.is_array()) return plain_text_of(words);
  std::string text;
  for (const Json& word : words) append(word, " ", text);
  return text;
}

// The words of a row of token classification.
Json words_of_row(const TestRows& test, const Json& row) {
  return member(row, test.columns.text_column.value_or("tokens"));
}

// What the model was shown of a row.
std::string text_of_row(const TestRows& test, const std::string& task, const Json& row) {
  const ColumnNames& columns = test.columns;
  if (task == "token_classification") return joined_words(words_of_row(test, row));
  std::string text;
  for (const auto& column :
       {columns.context_column, columns.text_column, columns.text_pair_column}) {
    if (column) append(member(row, *column), "\n", text);
  }
  return text;
}

// Choice number `index` of a row as text.
std::string choice_of(const TestRows& test, const Json& row, const Json& index) {
  if (!index.is_number_unsigned()) return plain_text_of(index);
  const auto number = index.get<size_t>();
  const std::vector<std::string>& names = test.columns.choice_columns;
  Json choice;
  if (names.size() == 1) {
    const Json list = member(row, names[0]);
    if (list.is_array() && number < list.size()) choice = list[number];
  } else if (number < names.size()) {
    choice = member(row, names[number]);
  }
  return format_text("{}: {}", number, choice.is_null() ? "–" : plain_text_of(choice));
}

// "Hale: O instead of B-PER (0.02)", the tokens of a sentence that got a wrong label.
std::string wrong_tokens(const Json& entry, const Json& words) {
  const Json wrong = member(entry, "wrong");
  std::string text;
  if (!wrong.is_array()) return text;
  for (const Json& token : wrong) {
    const Json number = member(token, "word");
    const bool has_word = words.is_array() && number.is_number_integer() && number >= 0 &&
                          number.get<size_t>() < words.size();
    const std::string word =
        has_word ? plain_text_of(words[number.get<size_t>()]) : "word " + plain_text_of(number);
    text += (text.empty() ? "" : "\n") + word + ": " + plain_text_of(member(token, "predicted")) +
            " instead of " + plain_text_of(member(token, "label"));
    if (const auto score = number_in(token, "score")) text += " (" + figure_text(*score) + ")";
  }
  const int64_t unlisted =
      whole_number_in(entry, "wrong_tokens").value_or(0) - static_cast<int64_t>(wrong.size());
  if (unlisted > 0) text += format_text("\nand {} more", unlisted);
  return text;
}

// The rows of these samples, of the file that was predicted.
std::map<int64_t, Json> rows_of_samples(const TestRows& test, const std::vector<int64_t>& samples) {
  std::map<int64_t, Json> rows;
  const int64_t last = *std::ranges::max_element(samples);
  int64_t row = 0;
  visit_rows(test.files, test.options, [&](const DataRow& data) {
    if (std::ranges::find(samples, row) != samples.end()) rows.emplace(row, data.columns);
    return row++ < last;
  });
  return rows;
}

std::string label_text(const Json& value) {
  if (!value.is_array())
    return value.is_number_float() ? figure_text(value.get<double>()) : plain_text_of(value);
  std::string text;
  for (const Json& one : value) text += (text.empty() ? "" : ", ") + label_text(one);
  return text.empty() ? "–" : text;
}

class WorstTable {
 public:
  WorstTable(const RunFolder& run, const Json& names)
      : names_(names), task_(plain_text_of(member(run.config(), "task"))) {}

  // Throws Error where the file is damaged. `listed`: its entries.
  std::optional<RunReport::Worst> make(const RunFolder& run, const Json& stored,
                                       const Json& listed) {
    std::vector<Entry> entries;
    for (const Json& entry : listed) {
      const std::optional<int64_t> sample = whole_number_in(entry, "sample");
      if (!sample || entries.size() == kMostWorst) continue;
      entries.push_back({.sample = *sample,
                         .text = member(entry, "text"),
                         .label = member(entry, "label"),
                         .stored = entry});
    }
    const Json similarities = member(stored, "similarities");
    if (entries.empty() && !similarities.is_object()) return std::nullopt;
    const bool has_texts = entries.empty() || !entries[0].text.is_null();
    const std::string problem = has_texts ? "" : find_rows(run, entries);
    RunReport::Worst worst{.measure = member(stored, "measure"),
                           .title = "",
                           .source = plain_text_of(member(stored, "split")) + " data",
                           .samples = member(stored, "samples"),
                           .samples_shown = {},
                           .positives = counts_in(similarities, "positives"),
                           .others = counts_in(similarities, "others")};
    worst.title = measure_title(worst.measure);
    if (!problem.empty()) worst.source += "; without texts: " + problem;
    for (const Entry& entry : entries) worst.samples_shown.push_back(shown(entry));
    return worst;
  }

 private:
  static Json counts_in(const Json& similarities, const char* name) {
    const Json counts = member(similarities, name);
    return counts.is_array() && counts.size() <= 1000 ? counts : Json::array();
  }

  struct Entry {
    int64_t sample = 0;
    Json text;  // of question answering, else null
    Json label;
    Json stored;
  };

  // Returns why there are none, or nothing.
  std::string find_rows(const RunFolder& run, const std::vector<Entry>& entries) {
    try {
      test_ = test_rows_of(run);
      if (!test_) return "the run's test_file is not known";
      std::vector<int64_t> samples;
      for (const Entry& entry : entries) samples.push_back(entry.sample);
      rows_ = rows_of_samples(*test_, samples);
    } catch (const Error& error) {
      return error.what();
    }
    for (const Entry& entry : entries) {
      const auto row = rows_.find(entry.sample);
      if (row != rows_.end() && has_label(row->second, entry.label)) continue;
      rows_.clear();
      return "the rows of " + file_name(test_->files.front()) + " have changed since";
    }
    return "";
  }

  // Whether the row can be the one that was predicted.
  [[nodiscard]] bool has_label(const Json& row, const Json& expected) const {
    if (!expected.is_string() || !test_->columns.label_column) return true;
    const Json label = member(row, *test_->columns.label_column);
    return name_of_label(label, names_) == expected.get<std::string>();
  }

  [[nodiscard]] RunReport::WorstSample shown(const Entry& entry) const {
    const auto found = rows_.find(entry.sample);
    const Json row = found == rows_.end() ? Json() : found->second;
    const Json prediction = member(entry.stored, "predicted");
    std::string text;
    std::string label = label_text(entry.label);
    std::string predicted = label_text(prediction);
    if (!entry.text.is_null()) {
      append(entry.text, "", text);
      append(member(entry.stored, "context"), "\n", text);
    } else if (!row.is_null()) {
      text = text_of_row(*test_, task_, row);
    }
    if (task_ == "multiple_choice" && !row.is_null()) {
      label = choice_of(*test_, row, entry.label);
      predicted = choice_of(*test_, row, prediction);
    }
    if (task_ == "token_classification") {
      label = "";
      predicted = wrong_tokens(entry.stored, row.is_null() ? Json() : words_of_row(*test_, row));
    }
    const auto share = number_in(entry.stored, "predicted_score");
    if (share) predicted += " (" + figure_text(*share) + ")";
    return {{shown_text(text), shown_text(label), shown_text(predicted)},
            entry.sample,
            member(entry.stored, "score")};
  }

  const Json& names_;
  std::string task_;
  std::optional<TestRows> test_;
  std::map<int64_t, Json> rows_;  // by sample
};

}  // namespace

std::optional<RunReport::Worst> worst_of(const RunFolder& run, const Json& label_names) {
  const std::string path = join_path(run.path, kWorstSamplesFile);
  if (FileSystem::local().type(path) != FileType::kFile) return std::nullopt;
  try {
    const Json stored =
        read_json_file(path, ErrorKind::kData, {.max_bytes = kMostBytes, .allow_nan = true});
    const Json listed = member(stored, "worst");
    if (!listed.is_array()) return std::nullopt;
    return WorstTable(run, label_names).make(run, stored, listed);
  } catch (const Error&) {  // damaged, or being replaced: the report does without
    return std::nullopt;
  }
}

}  // namespace finetune
