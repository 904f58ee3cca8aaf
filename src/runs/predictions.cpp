// SPDX-License-Identifier: MIT
#include "runs/predictions.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/data/data_record.h"
#include "finetune/data/rows.h"
#include "finetune/model/model_config.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostClasses = 50;
constexpr size_t kMostMistakes = 20;
constexpr size_t kLongestExample = 300;

// Reads "index<TAB>prediction" followed by a line for each row.
std::vector<std::string> predictions_in(const std::string& path) {
  std::vector<std::string> predictions;
  if (FileSystem::local().type(path) != FileType::kFile) return predictions;
  std::istringstream lines(FileSystem::local().read_all(path, uint64_t{1} << 28));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    const size_t tab = line.find('\t');
    if (tab != std::string::npos) predictions.push_back(line.substr(tab + 1));
  }
  return predictions;
}

std::string source_of(const TestRows& test) {
  return "predict_results.txt compared with the labels of " + file_name(test.files.front());
}

size_t index_of(const std::string& label, std::vector<std::string>& labels) {
  const auto found = std::ranges::find(labels, label);
  const auto index = static_cast<size_t>(found - labels.begin());
  if (found == labels.end()) labels.push_back(label);
  return index;
}

std::vector<std::string> files_in(const Json& config, const char* key) {
  const Json value = member(config, key);
  std::vector<std::string> paths;
  if (value.is_string()) paths.push_back(value.get<std::string>());
  if (value.is_array()) {
    for (const Json& path : value) paths.push_back(plain_text_of(path));
  }
  if (paths.empty()) return paths;
  return expand_files(paths, key);
}

// Calls `visit` with each row that was predicted and its prediction, until it returns false.
// Returns whether there is a prediction for each row.
bool visit_predictions(const TestRows& test, const std::vector<std::string>& predictions,
                       const std::function<bool(const Json& row, const std::string&)>& visit) {
  size_t row = 0;
  bool continues = true;
  visit_rows(test.files, test.options, [&](const DataRow& data) {
    if (row >= predictions.size()) return false;
    continues = visit(data.columns, predictions[row++]);
    return continues;
  });
  return continues && row == predictions.size();
}

void count_classes(const TestRows& test, const std::vector<std::string>& predictions,
                   RunReport& report) {
  std::vector<std::string> labels;
  std::map<std::pair<size_t, size_t>, int64_t> counts;  // (true, predicted)
  std::vector<RunReport::Sample> mistakes;
  for (const auto& item : report.label_names.items()) index_of(plain_text_of(item.value()), labels);
  const bool is_complete =
      visit_predictions(test, predictions, [&](const Json& columns, const std::string& predicted) {
        const Json label = member(columns, *test.columns.label_column);
        if (label.is_null()) return false;
        const std::string name = name_of_label(label, report.label_names);
        const size_t row = index_of(name, labels);
        ++counts[{row, index_of(predicted, labels)}];
        if (name != predicted && mistakes.size() < kMostMistakes) {
          const Json text = member(columns, test.columns.text_column.value_or(""));
          mistakes.push_back({shown_text(plain_text_of(text)), name, predicted});
        }
        return labels.size() <= kMostClasses;
      });
  // Else these are other rows than those that were predicted.
  if (!is_complete) return;
  report.counts.assign(labels.size(), std::vector<int64_t>(labels.size()));
  for (const auto& [cell, count] : counts) report.counts[cell.first][cell.second] = count;
  report.labels = std::move(labels);
  report.mistakes = std::move(mistakes);
  report.predictions_source = source_of(test);
}

// The items of a list as Python prints it: ['a', "it's"].
std::set<std::string> python_list(const std::string& text) {
  std::set<std::string> items;
  for (size_t at = 1; at < text.size(); ++at) {
    const char quote = text[at];
    if (quote != '\'' && quote != '"') continue;
    std::string item;
    for (++at; at < text.size() && text[at] != quote; ++at) {
      if (text[at] != '\\' || at + 1 == text.size()) {
        item += text[at];
        continue;
      }
      const char escaped = text[++at];
      item += escaped == 'n' ? '\n' : escaped == 'r' ? '\r' : escaped == 't' ? '\t' : escaped;
    }
    items.insert(item);
  }
  return items;
}

struct LabelCounts {
  int64_t both = 0;
  int64_t predicted = 0;
  int64_t labelled = 0;

  [[nodiscard]] RunReport::LabelScore score(const std::string& label) const {
    const auto share = [](int64_t part, int64_t whole) {
      return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    return {.label = label,
            .precision = share(both, predicted),
            .recall = share(both, labelled),
            .f1 = share(2 * both, predicted + labelled),
            .samples = labelled};
  }
};

void score_labels(const TestRows& test, const std::vector<std::string>& predictions,
                  RunReport& report) {
  const Json& names = report.label_names;
  std::vector<std::string> labels;
  for (const auto& item : names.items()) labels.push_back(plain_text_of(item.value()));
  std::map<std::string, LabelCounts> counts;
  const bool is_complete =
      visit_predictions(test, predictions, [&](const Json& columns, const std::string& predicted) {
        const Json value = member(columns, *test.columns.label_column);
        if (!value.is_array()) return false;
        std::set<std::string> right;
        for (const Json& label : value) right.insert(name_of_label(label, names));
        const std::set<std::string> found = python_list(predicted);
        for (const std::string& label : right) {
          ++counts[label].labelled;
          counts[label].both += found.contains(label) ? 1 : 0;
        }
        for (const std::string& label : found) ++counts[label].predicted;
        return true;
      });
  if (!is_complete) return;
  for (const std::string& label : labels) report.label_scores.push_back(counts[label].score(label));
  report.predictions_source = source_of(test);
}

void compare_with_labels(const RunFolder& run, RunReport& report) {
  const std::vector<std::string> predictions =
      predictions_in(join_path(run.path, "predict_results.txt"));
  const std::optional<TestRows> test = test_rows_of(run);
  if (predictions.empty() || !test || !test->columns.label_column) return;
  const Json problem = member(model_fields_of(run.path), "problem_type");
  if (problem == "regression") return;
  if (problem == "multi_label_classification") return score_labels(*test, predictions, report);
  count_classes(*test, predictions, report);
}

}  // namespace

Json model_fields_of(const std::string& folder) {
  const std::string path = join_path(folder, kConfigFile);
  if (FileSystem::local().type(path) == FileType::kFile) return read_json_file(path);
  if (FileSystem::local().type(join_path(folder, kAdapterConfigFile)) != FileType::kFile) {
    return Json::object();
  }
  return parse_json(model_config_json(read_model_config(folder), ""), folder);
}

std::optional<TestRows> test_rows_of(const RunFolder& run) {
  const std::optional<DataRecord> record = read_data_record(run.path);
  TestRows rows{.files = files_in(run.config(), "test_file"), .columns = {}, .options = {}};
  if (!record || rows.files.empty()) return std::nullopt;
  rows.columns = record->columns;
  rows.options.key = "test_file";
  rows.options.reading = record->reading;
  if (member(run.config(), "task") == "token_classification") {
    rows.options.reading.conll_text = ConllText::kAny;
  }
  return rows;
}

std::string plain_text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string name_of_label(const Json& value, const Json& names) {
  const std::string text = plain_text_of(value);
  const Json named = member(names, text);
  return named.is_string() ? named.get<std::string>() : text;
}

std::string shown_text(const std::string& text) {
  return printable(shortened(text, kLongestExample));
}

FileValue calibration_of(const RunFolder& run) {
  const std::string path = join_path(run.path, std::string("eval") + kCalibrationEnd);
  if (FileSystem::local().type(path) != FileType::kFile) return nullptr;
  try {
    const Json stored = read_json_file(path, ErrorKind::kData, {.max_bytes = 1 << 20});
    const Json kinds = member(stored, "kinds");
    const auto is_points = [](const Json& bins) {
      return bins.is_array() && std::ranges::all_of(bins, [](const Json& bin) {
               return member(bin, "samples").is_number() && member(bin, "confidence").is_number() &&
                      member(bin, "accuracy").is_number();
             });
    };
    const auto is_whole = [&](const Json& kind) {
      const Json coverage = member(kind, "coverage");
      return member(kind, "name").is_string() && member(kind, "samples").is_number() &&
             member(kind, "temperature").is_number() && is_points(member(kind, "before")) &&
             is_points(member(kind, "after")) && coverage.is_array() &&
             std::ranges::all_of(coverage, [](const Json& one) { return one.is_number(); });
    };
    if (kinds.is_array() && std::ranges::all_of(kinds, is_whole)) return kinds;
  } catch (const Error&) {  // damaged, or being replaced: the report does without
  }
  return nullptr;
}

void add_predictions(const RunFolder& run, RunReport& report) {
  if (member(run.config(), "task") != "sequence_classification") return;
  try {
    compare_with_labels(run, report);
  } catch (const Error&) {  // moved or changed since: the report does without
  }
}

}  // namespace finetune
