// SPDX-License-Identifier: MIT
#include "cli/run_predictions.h"

#include <algorithm>
#include <sstream>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/printable.h"
#include "finetune/data/data_record.h"
#include "finetune/data/rows.h"

namespace finetune::cli {
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

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns a row's label by the name used in predictions; files may contain a class id.
std::string name_of_label(const Json& value, const Json& names) {
  const std::string text = text_of(value);
  const Json named = member(names, text);
  return named.is_string() ? named.get<std::string>() : text;
}

struct Counted {
  std::vector<std::string> labels;
  std::map<std::pair<size_t, size_t>, int64_t> counts;  // (true, predicted)
  Json mistakes = Json::array();

  size_t index(const std::string& label) {
    const auto found = std::ranges::find(labels, label);
    if (found != labels.end()) return static_cast<size_t>(found - labels.begin());
    labels.push_back(label);
    return labels.size() - 1;
  }
};

Json confusion_json(const Counted& counted, const std::string& source) {
  const size_t size = counted.labels.size();
  Json rows = Json::array();
  for (size_t i = 0; i < size; ++i) {
    Json row = Json::array();
    for (size_t j = 0; j < size; ++j) {
      const auto found = counted.counts.find({i, j});
      row.push_back(found == counted.counts.end() ? 0 : found->second);
    }
    rows.push_back(std::move(row));
  }
  return {{"labels", counted.labels},
          {"counts", std::move(rows)},
          {"worst", counted.mistakes},
          {"source", source}};
}

std::vector<std::string> files_in(const Json& config, const char* key) {
  const Json value = member(config, key);
  std::vector<std::string> paths;
  if (value.is_string()) paths.push_back(value.get<std::string>());
  if (value.is_array()) {
    for (const Json& path : value) paths.push_back(text_of(path));
  }
  return expand_files(paths, key);
}

Json compare(const RunFolder& run, const Json& names) {
  const Json config = run.config();
  const std::vector<std::string> predictions =
      predictions_in(join_path(run.path, "predict_results.txt"));
  const std::optional<DataRecord> record = read_data_record(run.path);
  if (predictions.empty() || !record || !record->columns.label_column) return nullptr;
  const std::vector<std::string> files = files_in(config, "test_file");
  if (files.empty()) return nullptr;
  Counted counted;
  for (const auto& item : names.items()) counted.index(text_of(item.value()));
  size_t row = 0;
  bool has_labels = true;
  RowOptions options;
  options.key = "test_file";
  visit_rows(files, options, [&](const DataRow& data) {
    if (row >= predictions.size()) return false;
    const Json label = member(data.columns, *record->columns.label_column);
    has_labels = !label.is_null();
    if (!has_labels) return false;
    const std::string name = name_of_label(label, names);
    const std::string& predicted = predictions[row++];
    ++counted.counts[{counted.index(name), counted.index(predicted)}];
    if (name != predicted && counted.mistakes.size() < kMostMistakes) {
      const Json text = member(data.columns, record->columns.text_column.value_or(""));
      counted.mistakes.push_back({{"text", printable(shortened(text_of(text), kLongestExample))},
                                  {"label", name},
                                  {"predicted", predicted}});
    }
    return counted.labels.size() <= kMostClasses;
  });
  // The rows are not those that were predicted.
  if (!has_labels || row != predictions.size()) return nullptr;
  return confusion_json(
      counted, "predict_results.txt compared with the labels of " + file_name(files.front()));
}

}  // namespace

Json confusion_of(const RunFolder& run, const Json& label_names) {
  if (member(run.config(), "task") != "sequence_classification") return nullptr;
  try {
    return compare(run, label_names);
  } catch (const Error&) {  // the files were moved or changed: omit it
    return nullptr;
  }
}

}  // namespace finetune::cli
