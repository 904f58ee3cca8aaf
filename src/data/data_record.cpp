// SPDX-License-Identifier: MIT
#include "finetune/data/data_record.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Column = std::optional<std::string>;

constexpr uint64_t kMostBytes = uint64_t{16} << 20;

const std::array<std::pair<const char*, Column ColumnNames::*>, 4> kColumns = {
    {{"text_column", &ColumnNames::text_column},
     {"text_pair_column", &ColumnNames::text_pair_column},
     {"context_column", &ColumnNames::context_column},
     {"label_column", &ColumnNames::label_column}}};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorKind::kData, path + ": " + what +
                                    "; the file is damaged: copy it again with the model, or "
                                    "delete it to have columns guessed");
}

// Keys that are missing or null are unset.
ColumnNames parse_columns(const Json& json, const std::string& path) {
  ColumnNames columns;
  for (const auto& [key, member] : kColumns) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_string()) refuse(path, std::string(key) + " is not text");
    columns.*member = found->get<std::string>();
  }
  const auto choices = json.find("choice_columns");
  if (choices == json.end() || choices->is_null()) return columns;
  if (!choices->is_array()) refuse(path, "choice_columns is not a list");
  for (const Json& choice : *choices) {
    if (!choice.is_string()) refuse(path, "choice_columns holds something that is not text");
    columns.choice_columns.push_back(choice.get<std::string>());
  }
  return columns;
}

std::vector<double> parse_weights(const Json& json, const std::string& path) {
  std::vector<double> weights;
  const auto found = json.find("class_weights");
  if (found == json.end()) return weights;
  if (!found->is_array()) refuse(path, "class_weights is not a list");
  for (const Json& weight : *found) {
    const bool fits = weight.is_number() && weight.get<double>() > 0 && weight.get<double>() < 1e18;
    if (!fits) refuse(path, "class_weights holds something that is no weight");
    weights.push_back(weight.get<double>());
  }
  return weights;
}

std::string task_of(const Json& json, const std::string& path) {
  const auto task = json.find("task");
  if (task == json.end() || !task->is_string()) refuse(path, "task is missing");
  return task->get<std::string>();
}

Json read_object(const std::string& path) {
  Json json = parse_json(FileSystem::local().read_all(path, kMostBytes), path);
  if (!json.is_object()) refuse(path, "is not a JSON object");
  return json;
}

}  // namespace

std::string DataRecord::to_text() const {
  Json names = Json::object();
  for (const auto& [key, member] : kColumns) {
    if (columns.*member) names[key] = *(columns.*member);
  }
  if (!columns.choice_columns.empty()) names["choice_columns"] = columns.choice_columns;
  Json json = {{"task", task}, {"columns", std::move(names)}};
  if (!class_weights.empty()) json["class_weights"] = class_weights;
  return json.dump(2) + "\n";
}

std::optional<DataRecord> read_data_record(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(folder, kDataRecordFile);
  if (files.exists(path)) {
    const Json json = read_object(path);
    const auto columns = json.find("columns");
    if (columns == json.end() || !columns->is_object()) refuse(path, "columns is missing");
    return DataRecord{.task = task_of(json, path),
                      .columns = parse_columns(*columns, path),
                      .class_weights = parse_weights(json, path)};
  }
  const std::string state = join_path(folder, "finetune_state.json");
  if (!files.exists(state)) return std::nullopt;
  const Json json = read_object(state);
  const auto config = json.find("config");
  if (config == json.end() || !config->is_object()) return std::nullopt;
  return DataRecord{.task = task_of(*config, state), .columns = parse_columns(*config, state)};
}

}  // namespace finetune
