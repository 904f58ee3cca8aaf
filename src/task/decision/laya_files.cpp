// SPDX-License-Identifier: MIT
#include "task/decision/laya_files.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// The order of `temperature` in the file.
constexpr std::array kOrder = {QuestionType::kChoice, QuestionType::kScore, QuestionType::kNoul};

constexpr const char* kTemperatureList = "temperature";
constexpr const char* kByOptions = "temperature_by_options";

double temperature_in(const Json& value, const std::string& name, const std::string& where) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    throw Error(ErrorKind::kData, where + ": " + name + " must be a finite number");
  }
  const double given = value.get<double>();
  const double bounded = std::clamp(given, 0.5, 5.0);
  if (bounded != given) {
    log::warning(format_text("{}: {} is {}; {} is used, as laya does", where, name,
                             format_double(given), format_double(bounded)));
  }
  return bounded;
}

}  // namespace

DecisionSettings new_laya_settings() {
  DecisionSettings settings;
  settings.noul_options = {"false", "true"};
  settings.has_labels = false;
  return settings;
}

DecisionSettings parse_laya_settings(const Json& json, const std::string& where) {
  DecisionSettings settings = new_laya_settings();
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": is no object of JSON");
  if (const auto found = json.find(kTemperatureList); found != json.end()) {
    if (!found->is_array() || found->size() != kOrder.size()) {
      throw Error(ErrorKind::kData,
                  where + ": temperature is no list of 3 numbers, of choice, score and noul");
    }
    for (size_t i = 0; i < kOrder.size(); ++i) {
      settings.temperature[static_cast<size_t>(kOrder[i])] =
          temperature_in((*found)[i], format_text("temperature[{}]", i), where);
    }
  }
  const auto by_options = json.find(kByOptions);
  if (by_options == json.end() || by_options->is_null()) return settings;
  if (!by_options->is_object()) {
    throw Error(ErrorKind::kData,
                where + ": temperature_by_options is no object {\"choice:3-5\": number}");
  }
  for (const auto& [name, value] : by_options->items()) {
    settings.temperature_by_options[name] = temperature_in(value, "'" + name + "'", where);
  }
  return settings;
}

std::string laya_settings_text(Json json, const ModelConfig& config,
                               const DecisionSettings& settings) {
  if (!json.contains("encoder")) json["encoder"] = config.model_type;
  if (!json.contains("act_costs")) json["act_costs"] = Json::object();
  json["head_layers"] = config.laya->head_layers;
  if (config.laya->dropout != LayaConfig{}.dropout) json["dropout"] = config.laya->dropout;
  json["max_len"] = config.laya->max_len;
  json["head_max_len"] = config.laya->head_max_len;
  json["fine_tuned"] = true;
  json[kTemperatureList] = Json::array();
  for (const QuestionType type : kOrder) {
    json[kTemperatureList].push_back(settings.temperature[static_cast<size_t>(type)]);
  }
  json.erase(kByOptions);
  if (!settings.temperature_by_options.empty()) {
    json[kByOptions] = settings.temperature_by_options;
  }
  return json.dump(2) + "\n";
}

std::vector<std::pair<std::string, std::string>> laya_files(Json json, const ModelConfig& config,
                                                            const DecisionSettings& settings,
                                                            const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, std::string>> files = {
      {kLayaFile, laya_settings_text(std::move(json), config, settings)},
      {kLayaEncoderFile, encoder_config_json(config)}};
  for (auto& [name, content] : tokenizer.files()) {
    files.emplace_back(join_path(kLayaTokenizerFolder, name), std::move(content));
  }
  return files;
}

}  // namespace finetune
