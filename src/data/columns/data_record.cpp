// SPDX-License-Identifier: MIT
#include "finetune/data/data_record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/model_files.h"

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

constexpr const char* kAdvice =
    "; the file is damaged: copy it again with the model, or delete it to have columns guessed";

ColumnNames parse_columns(const JsonFields& fields) {
  ColumnNames columns;
  for (const auto& [key, member] : kColumns) fields.read(key, columns.*member);
  if (fields.find("choice_columns") != nullptr) {
    columns.choice_columns = fields.texts("choice_columns");
  }
  if (fields.find("text_columns") != nullptr) columns.text_columns = fields.texts("text_columns");
  return columns;
}

constexpr std::array<std::pair<Quoting, const char*>, 3> kQuoting = {
    {{Quoting::kAuto, "auto"}, {Quoting::kStandard, "standard"}, {Quoting::kNone, "none"}}};

// Returns null for the defaults, which are not written.
Json reading_record(const ReadingOptions& reading) {
  Json json;
  if (reading.delimiter) json["delimiter"] = std::string(1, *reading.delimiter);
  for (const auto& [quoting, name] : kQuoting) {
    if (quoting == reading.quoting && quoting != Quoting::kAuto) json["quoting"] = name;
  }
  if (!reading.header) json["header"] = false;
  return json;
}

ReadingOptions parse_reading(const JsonFields& fields) {
  ReadingOptions reading;
  if (fields.find("delimiter") != nullptr) {
    const std::string delimiter = fields.text("delimiter");
    if (delimiter.size() != 1) fields.refuse("delimiter", "one ASCII character");
    reading.delimiter = delimiter.front();
  }
  if (fields.find("quoting") != nullptr) {
    const std::string name = fields.text("quoting");
    const auto known =
        std::ranges::find_if(kQuoting, [&](const auto& q) { return name == q.second; });
    if (known == kQuoting.end()) fields.refuse("quoting", "auto, standard or none");
    reading.quoting = known->first;
  }
  fields.read("header", reading.header);
  return reading;
}

Json read_record(const std::string& path) {
  return parse_json(FileSystem::local().read_all(path, kMostBytes), path);
}

}  // namespace

std::string DataRecord::to_text() const {
  Json names = Json::object();
  for (const auto& [key, member] : kColumns) {
    if (columns.*member) names[key] = *(columns.*member);
  }
  if (!columns.choice_columns.empty()) names["choice_columns"] = columns.choice_columns;
  if (!columns.text_columns.empty()) names["text_columns"] = columns.text_columns;
  Json json = {{"task", task}, {"columns", std::move(names)}};
  if (!class_weights.empty()) json["class_weights"] = class_weights;
  if (Json read_as = reading_record(reading); !read_as.is_null()) {
    json["reading"] = std::move(read_as);
  }
  return json.dump(2) + "\n";
}

std::optional<DataRecord> read_data_record(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(folder, kDataRecordFile);
  if (files.exists(path)) {
    const Json json = read_record(path);
    const JsonFields fields(json, path, ErrorKind::kData, kAdvice);
    DataRecord record{.task = fields.text("task"),
                      .columns = parse_columns(fields.fields("columns"))};
    if (fields.find("class_weights") != nullptr) {
      record.class_weights = fields.numbers("class_weights", {.low = 0x1p-1022, .high = 1e18});
    }
    if (fields.find("reading") != nullptr) record.reading = parse_reading(fields.fields("reading"));
    return record;
  }
  const std::string state = join_path(folder, kFinetuneStateFile);
  if (!files.exists(state)) return std::nullopt;
  const Json json = read_record(state);
  const JsonFields fields(json, state, ErrorKind::kData, kAdvice);
  const Json* config = fields.find("config");
  if (config == nullptr || !config->is_object()) return std::nullopt;
  const JsonFields of_config = fields.fields("config");
  return DataRecord{.task = of_config.text("task"), .columns = parse_columns(of_config)};
}

}  // namespace finetune
