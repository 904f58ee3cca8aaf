// SPDX-License-Identifier: MIT
#include "finetune/nn/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/name_pattern.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"

namespace finetune::nn {
namespace {

constexpr char kAllLinear[] = "all-linear";

// Whether `name` is `end`, or its last components are.
bool ends_with_components(std::string_view name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  return name.size() == end.size() || name[name.size() - end.size() - 1] == '.';
}

// Whether a module that the parameter is in has a name that is meant.
template <class IsMeant>
bool is_in_module(const std::string& parameter, const IsMeant& is_meant) {
  for (size_t dot = parameter.find('.'); dot != std::string::npos;
       dot = parameter.find('.', dot + 1)) {
    if (is_meant(std::string_view(parameter).substr(0, dot))) return true;
  }
  return false;
}

std::string last_component(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// Compiles what a key or file names, for whole texts; `before`: what may stand before it.
NamePattern compiled(const std::string& text, const char* key, const std::string& before = "") {
  try {
    NamePattern pattern(text);
    return before.empty() ? pattern : NamePattern(before + "(?:" + text + ")");
  } catch (const Error& error) {
    constexpr size_t kShown = 200;
    throw LoraError(key,
                    "'" + shortened(text, kShown) + "' is no regular expression: " + error.what());
  }
}

bool matches(const NamePattern& pattern, const std::string& module, const char* key) {
  try {
    return pattern.matches(module);
  } catch (const Error& error) {  // too many steps
    throw LoraError(key, error.what());
  }
}

}  // namespace

class LoraTargets::Names {
 public:
  Names(const ModuleNames& modules, const char* key) : names_(modules.names), key_(key) {
    if (!modules.is_pattern) return;
    FT_CHECK(names_.size() == 1, "one pattern");
    pattern_ = compiled(names_.front(), key);
  }

  [[nodiscard]] bool has(const std::string& module) const {
    if (pattern_) return matches(*pattern_, module, key_);
    return std::ranges::any_of(
        names_, [&](const std::string& name) { return ends_with_components(module, name); });
  }
  // The first name that matches no module of the list; empty: each matches one.
  [[nodiscard]] std::string without(const std::vector<std::string>& modules) const {
    for (const std::string& name : names_) {
      const bool is_used = std::ranges::any_of(modules, [&](const std::string& module) {
        return pattern_ ? has(module) : ends_with_components(module, name);
      });
      if (!is_used) return name;
    }
    return "";
  }
  // Whether the module is named by its end alone.
  [[nodiscard]] bool has_end(const std::string& module) const {
    return !pattern_ && std::ranges::find(names_, module) == names_.end();
  }
  [[nodiscard]] bool is_all_linear() const {
    return !pattern_ && names_ == std::vector<std::string>{kAllLinear};
  }

 private:
  std::vector<std::string> names_;
  const char* key_;
  std::optional<NamePattern> pattern_;
};

// Values by regular expressions for the last components of names.
template <typename T>
class LoraTargets::Patterns {
 public:
  Patterns(const std::vector<std::pair<std::string, T>>& patterns, const char* key) : key_(key) {
    for (const auto& [text, value] : patterns) {
      entries_.push_back({text, compiled(text, key, "(?:.*\\.)?"), value});
    }
  }

  [[nodiscard]] T value_or(const std::string& module, T otherwise) {
    const Entry* found = nullptr;
    for (Entry& entry : entries_) {
      if (!matches(entry.pattern, module, key_)) continue;
      entry.is_used = true;
      // PEFT takes the first, but its files do not keep their order.
      if (found != nullptr && found->value != entry.value) {
        throw LoraError(key_, "'" + found->text + "' and '" + entry.text + "' both match '" +
                                  module + "', with other values; let one of them match");
      }
      found = &entry;
    }
    return found == nullptr ? otherwise : found->value;
  }
  void check() const {
    for (const Entry& entry : entries_) {
      if (entry.is_used) continue;
      throw LoraError(key_, "'" + entry.text + "' matches no layer that has an adapter");
    }
  }

 private:
  struct Entry {
    std::string text;
    NamePattern pattern;
    T value;
    bool is_used = false;
  };
  std::vector<Entry> entries_;
  const char* key_;
};

LoraTargets::LoraTargets(const LoraConfig& config)
    : config_(config),
      targets_(std::make_unique<const Names>(config.target_modules, "lora_target_modules")),
      excluded_(std::make_unique<const Names>(config.exclude_modules, "lora_exclude_modules")),
      ranks_(std::make_unique<Patterns<int64_t>>(config.rank_pattern, "lora_rank_pattern")),
      alphas_(std::make_unique<Patterns<double>>(config.alpha_pattern, "lora_alpha_pattern")) {
  if (config.target_modules.is_pattern && !config.layers_to_transform.empty()) {
    throw LoraError("lora_layers_to_transform",
                    "has no effect on targets that are a regular expression (lora_target_modules: "
                    "'" +
                        config.target_modules.names.front() + "'); put the layers into it");
  }
}

LoraTargets::~LoraTargets() = default;

bool LoraTargets::is_target(const std::string& module) const {
  if (is_of_modules(module + ".weight", config_.modules_to_save)) return false;
  if (excluded_->has(module)) return false;
  if (!targets_->is_all_linear() && !targets_->has(module)) return false;
  if (!config_.layers_to_transform.empty() && targets_->has_end(module) && !is_in_layers(module)) {
    return false;
  }
  if (is_saved_whole(module + ".weight", config_.modules_to_save)) {
    if (targets_->is_all_linear()) return false;  // DistilBERT's pre_classifier
    throw LoraError("lora_modules_to_save",
                    "[" + join(config_.modules_to_save, ", ") + "] also names '" + module +
                        "' by its end, which has an adapter; write more of the names, with a dot");
  }
  return true;
}

// The first number among the components after the first two, as PEFT finds it; one follows it.
bool LoraTargets::is_in_layers(const std::string& module) const {
  size_t begin = 0;
  for (int before = 0;; ++before) {
    const size_t end = module.find('.', begin);
    if (end == std::string::npos) return false;
    const char* const last = module.data() + end;
    int64_t number = -1;
    const auto [rest, error] = std::from_chars(module.data() + begin, last, number);
    if (before >= 2 && error == std::errc() && rest == last && number >= 0) {
      return std::ranges::count(config_.layers_to_transform, number) > 0;
    }
    begin = end + 1;
  }
}

std::optional<LoraSettings> LoraTargets::find(const std::string& module, bool is_output) {
  if (is_output) {
    if (!targets_->is_all_linear() && is_target(module)) refused_ = module;
    return std::nullopt;
  }
  layers_.push_back(module);
  if (!is_target(module)) return std::nullopt;
  return settings_of(module);
}

std::optional<LoraSettings> LoraTargets::find_embedding(const std::string& module) {
  if (targets_->is_all_linear()) return std::nullopt;
  layers_.push_back(module);
  if (!is_target(module)) {
    // PEFT passes over it without a message.
    const bool is_named = targets_->has_end(module) && targets_->has(module) &&
                          !excluded_->has(module) && config_.file.empty();
    if (is_named && !config_.layers_to_transform.empty()) {
      throw LoraError("lora_layers_to_transform",
                      "leaves out '" + module +
                          "', which is in none of the layers; write its full name in "
                          "lora_target_modules, or leave it out there");
    }
    return std::nullopt;
  }
  if (config_.use_dora) {
    throw LoraError("use_dora", "is not available for embeddings, and '" + module +
                                    "' is one; leave it out of lora_target_modules");
  }
  return settings_of(module);
}

std::optional<LoraSettings> LoraTargets::find_parameter(const std::string& name) {
  parameters_.push_back(name);
  const auto is_meant = [&](const std::string& target) {
    return ends_with_components(name, target);
  };
  if (std::ranges::none_of(config_.target_parameters, is_meant)) return std::nullopt;
  if (config_.lora_dropout != 0.0) {
    throw LoraError("lora_dropout",
                    "has no effect on adapters of experts (lora_target_parameters: '" + name +
                        "'), and PEFT refuses it there; set it to 0");
  }
  if (config_.use_dora) {
    throw LoraError("use_dora", "is not available for experts (lora_target_parameters: '" + name +
                                    "'), as in PEFT; leave it out");
  }
  return settings_of(name);
}

void LoraTargets::check_parameters() const {
  for (const std::string& target : config_.target_parameters) {
    const auto is_meant = [&](const std::string& name) {
      return ends_with_components(name, target);
    };
    if (std::ranges::any_of(parameters_, is_meant)) continue;
    std::set<std::string> names;
    for (const std::string& name : parameters_) {
      names.insert(name.substr(name.rfind('.', name.rfind('.') - 1) + 1));
    }
    throw LoraError(
        "lora_target_parameters",
        "no parameter of the model that stacks the matrices of experts is named '" + target +
            "'; it has " +
            (names.empty() ? "none"
                           : join(std::vector<std::string>(names.begin(), names.end()), ", ")));
  }
}

LoraSettings LoraTargets::settings_of(const std::string& module) {
  has_any_ = true;
  const int64_t rank = ranks_->value_or(module, config_.r);
  const double alpha = alphas_->value_or(module, config_.lora_alpha);
  const auto divisor = static_cast<double>(rank);
  return {rank, alpha / (config_.use_rslora ? std::sqrt(divisor) : divisor)};
}

void LoraTargets::check() const {
  check_parameters();
  if (!refused_.empty()) {
    throw LoraError("lora_target_modules",
                    "'" + refused_ +
                        "' is an output layer, which has no adapter here; train it whole with "
                        "lora_modules_to_save: [" +
                        last_component(refused_) + "]");
  }
  std::set<std::string> names;
  for (const std::string& name : layers_) names.insert(last_component(name));
  const std::string has = join(std::vector<std::string>(names.begin(), names.end()), ", ");
  const std::string none_is = targets_->is_all_linear()
                                  ? "no linear layer of the model is named '"
                                  : "no linear layer or embedding of the model is named '";
  if (!has_any_) {
    for (const std::string& layer : layers_) {
      if (!is_of_modules(layer + ".weight", config_.modules_to_save)) continue;
      if (!targets_->is_all_linear() && !targets_->has(layer)) continue;
      throw LoraError("lora_modules_to_save",
                      "trains '" + layer +
                          "' whole, and lora_target_modules gives it an adapter; " +
                          "name it in one of them, so that another layer has an adapter");
    }
    if (!config_.layers_to_transform.empty() || !config_.exclude_modules.names.empty()) {
      throw LoraError(
          config_.layers_to_transform.empty() ? "lora_exclude_modules" : "lora_layers_to_transform",
          "leaves no linear layer that lora_target_modules names; the model has " + has);
    }
    throw LoraError("lora_target_modules", none_is + join(config_.target_modules.names, "', '") +
                                               "'; it has " + has + " (or all-linear)");
  }
  ranks_->check();
  alphas_->check();
  if (!config_.file.empty()) return;  // PEFT's lists may name layers of other models
  const std::string missing = targets_->is_all_linear() ? "" : targets_->without(layers_);
  if (!missing.empty()) {
    throw LoraError("lora_target_modules", none_is + missing + "'; it has " + has);
  }
  if (const std::string unused = excluded_->without(layers_); !unused.empty()) {
    throw LoraError("lora_exclude_modules", none_is + unused + "'; it has " + has);
  }
}

bool is_saved_whole(const std::string& parameter, const std::vector<std::string>& modules) {
  return is_in_module(parameter, [&](std::string_view path) {
    return std::ranges::any_of(modules, [&](const auto& name) { return path.ends_with(name); });
  });
}

bool trains_whole(const LoraConfig& config, const std::string& parameter, bool is_adapted) {
  if (is_saved_whole(parameter, config.modules_to_save)) return true;
  if (!parameter.ends_with("bias")) return false;
  return config.bias == "all" || (config.bias == "lora_only" && is_adapted);
}

bool is_of_modules(const std::string& parameter, const std::vector<std::string>& modules) {
  return is_in_module(parameter, [&](std::string_view path) {
    return std::ranges::any_of(modules,
                               [&](const auto& name) { return ends_with_components(path, name); });
  });
}

}  // namespace finetune::nn
