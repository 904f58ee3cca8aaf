// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// Reads loss_kwargs (an object of JSON, or empty) of a loss with the arguments `known`: calls `set`
// with each name and value. Throws Error(kConfig), without the key's location, for another name.
void read_loss_kwargs(
    const std::string& text, std::string_view loss, const std::vector<std::string_view>& known,
    const std::function<void(const std::string& name, const nlohmann::ordered_json& value)>& set);

// Return the value of an argument. Throw Error(kConfig) for another one.
[[nodiscard]] double positive_number(const std::string& name, const nlohmann::ordered_json& value);
[[nodiscard]] int64_t whole_number(const std::string& name, const nlohmann::ordered_json& value);
[[nodiscard]] double number_value(const std::string& name, const nlohmann::ordered_json& value);
[[nodiscard]] bool truth_value(const std::string& name, const nlohmann::ordered_json& value);
[[nodiscard]] std::string text_value(const std::string& name, const nlohmann::ordered_json& value);
[[nodiscard]] std::string one_of(const std::string& name, const nlohmann::ordered_json& value,
                                 const std::vector<std::string>& choices);

}  // namespace finetune
