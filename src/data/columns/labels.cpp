// SPDX-License-Identifier: MIT
#include "finetune/data/labels.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <unordered_set>
#include <utility>

#include "data/cache/file_findings.h"
#include "data/columns/json_row.h"
#include "data/columns/label_values.h"
#include "data/columns/row.h"
#include "data/columns/row_columns.h"
#include "data/readers/file_format.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"
#include "finetune/data/data_files.h"

namespace finetune {
namespace {

using Json = Row::Json;

constexpr size_t kMostLabels = size_t{1} << 20;

std::vector<std::string> sorted_lower_case(const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const std::string& name : names) result.push_back(lower_case(name));
  std::ranges::sort(result);
  return result;
}

// Orders decimal integers of any length by value.
bool integer_less(const std::string& a, const std::string& b) {
  const bool negative_a = a.starts_with('-');
  const bool negative_b = b.starts_with('-');
  if (negative_a != negative_b) return negative_a;
  if (a.size() != b.size()) return (a.size() < b.size()) != negative_a;
  return negative_a ? b < a : a < b;
}

// Collects the labels of a file one by one.
class Collector {
 public:
  enum class Kind { kNone, kInteger, kFraction, kBool, kText };

  explicit Collector(std::string column) : column_(std::move(column)) {}

  void add(const Json& value, const Row& row) {
    declare(row);
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) {
      row.refuse("column '" + column_ + "' holds " + describe(value) +
                 " where a label is expected");
    }
    std::string name;
    const Kind kind = kind_of(value, row, name);
    if (kind_ == Kind::kNone) first_ = describe(value) + " in " + row.position();
    kind_ = joined(kind, value, row);
    if (!seen_.insert(name).second) return;
    if (first_no_label_.empty() && is_no_label(value, row)) {
      first_no_label_ = row.position() + ": column '" + column_ + "' holds " + describe(value);
    }
    if (seen_.size() > kMostLabels) {
      row.fail(format_text(
          "column '{}' holds more than {} different labels; is it the column of labels?", column_,
          kMostLabels));
    }
  }

  [[nodiscard]] Kind kind() const { return kind_; }
  // "1.0", "0.0": how pandas writes whole numbers of a column with gaps.
  [[nodiscard]] bool are_few_whole_numbers() const {
    constexpr size_t kFew = 20;
    return kind_ == Kind::kFraction && seen_.size() > 1 && seen_.size() <= kFew &&
           std::ranges::all_of(seen_, [](const std::string& name) {
             const std::optional<double> number = parse_number(name);
             return number && *number == std::floor(*number);
           });
  }
  // The names that a schema declares in its order, then the others.
  [[nodiscard]] std::vector<std::string> ordered() const {
    std::vector<std::string> names = declared_;
    const std::set<std::string> known(declared_.begin(), declared_.end());
    for (std::string& name : sorted()) {
      if (!known.contains(name)) names.push_back(std::move(name));
    }
    return names;
  }
  // Throws if -1 or -100 is among the labels: most tools write them where there is no label. Of two
  // classes -1 and 1 it is a name.
  void check_names() const {
    if (first_no_label_.empty() || kind_ != Kind::kInteger) return;
    if (seen_.size() == 2 && seen_.contains("-1") && seen_.contains("1")) return;
    throw Error(ErrorKind::kConfig,
                first_no_label_ +
                    ", which most programs write where there is no label; leave such rows out, or "
                    "write the labels as text if it is a class");
  }

 private:
  [[nodiscard]] std::vector<std::string> sorted() const {
    std::vector<std::string> names(seen_.begin(), seen_.end());
    if (kind_ == Kind::kInteger) {
      std::ranges::sort(names, integer_less);
    } else if (kind_ == Kind::kFraction) {
      std::ranges::sort(names, [](const std::string& a, const std::string& b) {
        return std::pair(parse_number(a), a) < std::pair(parse_number(b), b);
      });
    } else {
      std::ranges::sort(names);
    }
    return names;
  }

  static bool is_no_label(const Json& value, const Row& row) {
    const auto integer = integer_of(value, row.typed());
    return integer && (*integer == -1 || *integer == kIgnoredLabel);
  }

  void declare(const Row& row) {
    const std::vector<std::string>* names = row.classes(column_);
    if (names == nullptr || names == last_declared_) return;
    last_declared_ = names;
    for (const std::string& name : *names) {
      if (std::ranges::find(declared_, name) == declared_.end()) declared_.push_back(name);
    }
  }

  Kind kind_of(const Json& value, const Row& row, std::string& name) const {
    if (value.is_array() || value.is_object()) {
      row.fail("column '" + column_ + "' holds " + describe(value) +
               " where one label is expected");
    }
    name = label_name(value).value_or("");
    if (value.is_boolean()) return Kind::kBool;
    if (value.is_number_integer()) return Kind::kInteger;
    if (value.is_number()) return Kind::kFraction;
    if (row.typed()) return Kind::kText;
    if (const auto integer = parse_integer(name)) {
      name = std::to_string(*integer);
      return Kind::kInteger;
    }
    return parse_number(name) ? Kind::kFraction : Kind::kText;
  }

  Kind joined(Kind kind, const Json& value, const Row& row) const {
    if (kind_ == Kind::kNone || kind == kind_) return kind;
    const auto is_number = [](Kind k) { return k == Kind::kInteger || k == Kind::kFraction; };
    if (is_number(kind) && is_number(kind_)) return Kind::kFraction;
    const bool is_fraction = kind == Kind::kFraction || kind_ == Kind::kFraction;
    if (!row.typed() && !is_fraction) return Kind::kText;
    row.fail("column '" + column_ + "' holds " + describe(value) + ", but " + first_ +
             "; all labels must be of one type");
  }

  std::string column_;
  Kind kind_ = Kind::kNone;
  std::string first_;
  std::string first_no_label_;  // the position of the first -1 or -100 with its message
  std::unordered_set<std::string> seen_;
  std::vector<std::string> declared_;
  const std::vector<std::string>* last_declared_ = nullptr;
};

// Computes the result of survey_labels() row by row.
class Survey {
 public:
  Survey(std::string column, std::optional<ProblemType> problem)
      : column_(std::move(column)), problem_(problem), labels_(column_) {}

  void add(const Row& row) {
    const Json& value = row.at(column_);
    const bool cell_is_list =
        !row.typed() && value.is_string() && value.get_ref<const std::string&>().starts_with('[');
    bool list = value.is_array() || (cell_is_list && is_list_.value_or(true));
    if (row.bare_lists()) {
      list = list || is_list_.value_or(problem_ == ProblemType::kMultiLabel);
      is_list_ = list;  // single values before were lists of one
    }
    if (!is_list_) is_list_ = list;
    if (list != *is_list_) {
      row.fail("column '" + column_ + "' holds " + describe(value) +
               " where the rows before hold " + (*is_list_ ? "lists" : "single labels"));
    }
    if (!list) {
      add_one(value, row);
      return;
    }
    const Json values = row.list(column_);
    if (problem_ == ProblemType::kSingleLabel) {
      row.fail("column '" + column_ +
               "' holds a list where problem_type single_label_"
               "classification expects one label");
    }
    for (const Json& item : values) add_one(item, row);
    if (!outputs_) outputs_ = values.size();
    if (*outputs_ != values.size() && uneven_.empty()) {
      uneven_ = format_text("{}: column '{}' holds {} numbers where the first row holds {}",
                            row.position(), column_, values.size(), *outputs_);
    }
  }

  [[nodiscard]] LabelSurvey finish(const std::string& key) const {
    LabelSurvey survey;
    survey.problem = problem();
    survey.are_whole = labels_.are_few_whole_numbers();
    if (survey.problem == ProblemType::kRegression) {
      if (!uneven_.empty()) throw Error(ErrorKind::kData, uneven_);
      survey.outputs = is_list_.value_or(false) ? static_cast<int64_t>(*outputs_) : 1;
      if (survey.outputs == 0) {
        throw Error(ErrorKind::kConfig, key + ": column '" + column_ + "' holds empty lists");
      }
      return survey;
    }
    labels_.check_names();
    survey.labels = LabelMap(labels_.ordered(), key);
    survey.outputs = survey.labels.size();
    if (survey.outputs < 2) {
      throw Error(ErrorKind::kConfig,
                  key + ": column '" + column_ + "' holds " +
                      (survey.outputs == 1 ? "the label " + survey.labels.list() + " alone"
                                           : std::string("no label")) +
                      "; classification needs at least two (or set problem_type: regression)");
    }
    return survey;
  }

 private:
  void add_one(const Json& value, const Row& row) {
    if (problem_ == ProblemType::kRegression) {
      static_cast<void>(number_of(value, row, column_));
      return;
    }
    if (problem_ == ProblemType::kMultiLabel && !*is_list_) {
      row.fail("column '" + column_ + "' holds " + describe(value) +
               " where problem_type multi_label_classification expects a list of labels");
    }
    labels_.add(value, row);
  }

  [[nodiscard]] ProblemType problem() const {
    if (problem_) return *problem_;
    if (labels_.kind() == Collector::Kind::kFraction) return ProblemType::kRegression;
    return is_list_.value_or(false) ? ProblemType::kMultiLabel : ProblemType::kSingleLabel;
  }

  std::string column_;
  std::optional<ProblemType> problem_;
  Collector labels_;
  std::optional<bool> is_list_;
  std::optional<size_t> outputs_;  // length of a list
  std::string uneven_;             // error if lists must have equal lengths
};

// Rows in memory are not cached.
TokenCacheOptions kept_for(const TokenCacheOptions& cache, const RowOptions& options) {
  return options.json_lines ? TokenCacheOptions{} : cache;
}

FileQuestion question_of(const std::vector<std::string>& files, const RowOptions& options,
                         Json columns) {
  FileQuestion question{.kind = "labels",
                        .files = options.json_lines ? files : expand_files(files, options.key),
                        .options = {{"columns", std::move(columns)},
                                    {"rows", {options.rows.begin, options.rows.end}},
                                    {"replace_broken_utf8", options.replace_broken_utf8}}};
  add_reading(question.options, options.reading);
  return question;
}

void read_all(const std::vector<std::string>& files, const RowOptions& options,
              const std::function<void(const Row&)>& visit) {
  for_each_row(files, options, [&](const Row& row) {
    visit(row);
    return true;
  });
}

}  // namespace

LabelMap::LabelMap(std::vector<std::string> names, const std::string& where)
    : names_(std::move(names)) {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!numbers_.emplace(names_[i], static_cast<int64_t>(i)).second) {
      throw Error(ErrorKind::kData, where + ": the label '" + names_[i] +
                                        "' is there twice; labels need different names");
    }
  }
}

LabelMap LabelMap::numbered(int64_t size) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < size; ++i) names.push_back(format_text("LABEL_{}", i));
  return LabelMap(std::move(names));
}

const std::string& LabelMap::name(int64_t number) const {
  FT_CHECK(number >= 0 && number < size(), "label out of range");
  return names_[static_cast<size_t>(number)];
}

std::optional<int64_t> LabelMap::find(std::string_view name) const {
  const auto found = numbers_.find(std::string(name));
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

bool LabelMap::is_numbered() const { return *this == numbered(size()); }

LabelMap LabelMap::in_order_of(const std::vector<std::string>& model_names) const {
  if (sorted_lower_case(names_) != sorted_lower_case(model_names)) return *this;
  const std::set<std::string> distinct(model_names.begin(), model_names.end());
  return distinct.size() == model_names.size() ? LabelMap(model_names) : *this;
}

std::string LabelMap::list() const {
  constexpr size_t kMostNames = 10;
  std::string text;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (i == kMostNames && names_.size() > kMostNames + 1) {
      return text + format_text(" and {} more", names_.size() - i);
    }
    text += (i > 0 ? ", '" : "'") + names_[i] + "'";
  }
  return text;
}

LabelSurvey survey_labels(const std::vector<std::string>& files, const RowOptions& options,
                          const std::optional<std::string>& label_column,
                          std::optional<ProblemType> problem, const TokenCacheOptions& cache) {
  const int64_t wanted = problem ? static_cast<int64_t>(*problem) : -1;
  LabelSurvey survey;
  answer_from_files(
      kept_for(cache, options), question_of(files, options, {label_column.value_or(""), wanted}),
      [&] {
        const Row first = first_row(files, options);
        Survey rows(find_label_column(first, label_column), problem);
        read_all(files, options, [&](const Row& row) { rows.add(row); });
        const LabelSurvey found = rows.finish(options.key);
        return Json{{"problem", static_cast<int64_t>(found.problem)},
                    {"labels", found.labels.names()},
                    {"outputs", found.outputs},
                    {"are_whole", found.are_whole}};
      },
      [&](const Json& found) {
        const auto type = found.at("problem").get<int64_t>();
        survey = {.problem = static_cast<ProblemType>(type),
                  .labels = LabelMap(found.at("labels").get<std::vector<std::string>>()),
                  .outputs = found.at("outputs").get<int64_t>(),
                  .are_whole = found.value("are_whole", false)};
        const bool is_number = survey.problem == ProblemType::kRegression;
        if (type < 0 || type > static_cast<int64_t>(ProblemType::kRegression) ||
            survey.outputs < 1 || (!is_number && survey.outputs != survey.labels.size())) {
          throw Error(ErrorKind::kData, "no labels");
        }
      });
  return survey;
}

LabelMap survey_word_labels(const std::vector<std::string>& files, const RowOptions& options,
                            const std::optional<std::string>& text_column,
                            const std::optional<std::string>& label_column,
                            const TokenCacheOptions& cache) {
  LabelMap map;
  answer_from_files(
      kept_for(cache, options),
      question_of(files, options, {"words", text_column.value_or(""), label_column.value_or("")}),
      [&] {
        const FoundColumns found =
            find_columns(first_row(files, options),
                         {.task = RowTask::kTokenClassification,
                          .named = {.text_column = text_column, .label_column = label_column}});
        const std::string& column = *found.names.label_column;
        Collector labels(column);
        read_all(files, options, [&](const Row& row) {
          for (const Json& value : row.list(column)) {
            if (value != kIgnoredLabel) labels.add(value, row);
          }
        });
        labels.check_names();
        if (labels.ordered().empty()) {
          throw Error(ErrorKind::kConfig, options.key + ": column '" + column + "' holds no label");
        }
        return Json(labels.ordered());
      },
      [&](const Json& found) {
        map = LabelMap(found.get<std::vector<std::string>>(), options.key);
      });
  return map;
}

}  // namespace finetune
