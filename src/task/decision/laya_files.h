// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/decision_questions.h"
#include "finetune/model/model_config.h"
#include "finetune/tokenizer/tokenizer.h"

// The files that laya.load() reads next to model.safetensors (laya 0.4).
namespace finetune {

// What rl_agent_config.json says of questions and their temperatures, which laya keeps within 0.5
// and 5. Throws Error(kData).
[[nodiscard]] DecisionSettings parse_laya_settings(const nlohmann::ordered_json& json,
                                                   const std::string& where);
// The settings of a new model.
[[nodiscard]] DecisionSettings new_laya_settings();

// `json`: rl_agent_config.json of the starting model, whose other fields are kept; or an empty
// object.
[[nodiscard]] std::string laya_settings_text(nlohmann::ordered_json json, const ModelConfig& config,
                                             const DecisionSettings& settings);

// Names and contents of all: rl_agent_config.json, encoder/config.json and the files of tokenizer/.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> laya_files(
    nlohmann::ordered_json json, const ModelConfig& config, const DecisionSettings& settings,
    const Tokenizer& tokenizer);

}  // namespace finetune
