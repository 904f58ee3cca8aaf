// SPDX-License-Identifier: MIT
#include "finetune/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune::nn {
namespace {

constexpr char kAllLinear[] = "all-linear";

// Whether `name` is `end`, or its last components are.
bool ends_with_components(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  return name.size() == end.size() || name[name.size() - end.size() - 1] == '.';
}

std::string last_component(const std::string& name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

struct LoraTargets::Pattern {
  std::regex regex;
};

double LoraConfig::scale() const {
  const auto rank = static_cast<double>(r);
  return lora_alpha / (use_rslora ? std::sqrt(rank) : rank);
}

LoraTargets::LoraTargets(const LoraConfig& config) : config_(config) {
  if (!config_.is_pattern) return;
  FT_CHECK(config_.target_modules.size() == 1, "one pattern");
  try {
    pattern_ = std::make_unique<const Pattern>(Pattern{std::regex(config_.target_modules.front())});
  } catch (const std::regex_error&) {
    throw LoraError("lora_target_modules", "'" + config_.target_modules.front() +
                                               "' is no regular expression (ECMAScript)");
  }
}

LoraTargets::~LoraTargets() = default;

bool LoraTargets::has(const std::string& module, bool is_output) {
  const bool is_all = !pattern_ && config_.target_modules == std::vector<std::string>{kAllLinear};
  const auto is_named = [&] {
    if (pattern_) return std::regex_match(module, pattern_->regex);
    return std::ranges::any_of(config_.target_modules, [&](const std::string& target) {
      return ends_with_components(module, target);
    });
  };
  if (is_of_modules(module + ".weight", config_.modules_to_save)) return false;
  if (is_output) {
    if (!is_all && is_named()) refused_ = module;
    return false;
  }
  linear_.push_back(module);
  const bool found = is_all || is_named();
  has_any_ = has_any_ || found;
  return found;
}

void LoraTargets::check() const {
  if (!refused_.empty()) {
    throw LoraError("lora_target_modules",
                    "'" + refused_ +
                        "' is an output layer, which has no adapter here; train it whole with "
                        "lora_modules_to_save: [" +
                        last_component(refused_) + "]");
  }
  if (has_any_) return;
  std::set<std::string> names;
  for (const std::string& name : linear_) names.insert(last_component(name));
  throw LoraError("lora_target_modules",
                  "no linear layer of the model is named '" + join(config_.target_modules, "', '") +
                      "'; it has " +
                      join(std::vector<std::string>(names.begin(), names.end()), ", ") +
                      " (or all-linear)");
}

bool is_of_modules(const std::string& parameter, const std::vector<std::string>& modules) {
  for (size_t dot = parameter.find('.'); dot != std::string::npos;
       dot = parameter.find('.', dot + 1)) {
    const std::string_view path = std::string_view(parameter).substr(0, dot);
    for (const std::string& module : modules) {
      if (ends_with_components(path, module)) return true;
    }
  }
  return false;
}

}  // namespace finetune::nn
