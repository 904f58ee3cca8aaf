// SPDX-License-Identifier: MIT
#include "model/adapter_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/model/adapter.h"
#include "finetune/model/model_folder.h"
#include "finetune/nn/experts.h"
#include "finetune/tensor/weight_files.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostRank = int64_t{1} << 16;

// Settings that change what the adapter computes, with the value that means "not used".
struct Unused {
  const char* name;
  const char* value;  // as JSON
};
constexpr std::array<Unused, 15> kUnused = {{{"alora_invocation_tokens", "null"},
                                             {"arrow_config", "null"},
                                             {"corda_config", "null"},
                                             {"eva_config", "null"},
                                             {"kasa_config", "null"},
                                             {"layer_replication", "null"},
                                             {"layers_pattern", "null"},
                                             {"loftq_config", "{}"},
                                             {"lora_bias", "false"},
                                             {"lora_ga_config", "null"},
                                             {"monteclora_config", "null"},
                                             {"trainable_token_indices", "null"},
                                             {"use_bdlora", "null"},
                                             {"use_qalora", "false"},
                                             {"velora_config", "null"}}};

// The other settings: those that are read, and those that change no result of a saved adapter.
constexpr std::array<std::string_view, 25> kRead = {"alpha_pattern",
                                                    "auto_mapping",
                                                    "base_model_name_or_path",
                                                    "bias",
                                                    "ensure_weight_tying",
                                                    "exclude_modules",
                                                    "fan_in_fan_out",
                                                    "inference_mode",
                                                    "init_lora_weights",
                                                    "layers_to_transform",
                                                    "lora_alpha",
                                                    "lora_dropout",
                                                    "megatron_core",
                                                    "modules_to_save",
                                                    "peft_type",
                                                    "peft_version",
                                                    "qalora_group_size",
                                                    "r",
                                                    "rank_pattern",
                                                    "revision",
                                                    "target_modules",
                                                    "target_parameters",
                                                    "task_type",
                                                    "use_dora",
                                                    "use_rslora"};

class AdapterReader {
 public:
  AdapterReader(Json json, std::string path) : json_(std::move(json)), path_(std::move(path)) {
    if (!json_.is_object()) fail("is no JSON object");
  }

  [[nodiscard]] nn::LoraConfig read() const {
    if (at("peft_type") != "LORA") {
      fail("holds an adapter of type " + shortened(at("peft_type").dump(), 100) +
           "; only LORA is available");
    }
    for (const Unused& unused : kUnused) {
      const Json& value = at(unused.name);
      if (is_empty(value) || value == Json::parse(unused.value)) continue;
      fail(format_text("sets '{}', which is not available in this version", unused.name));
    }
    check_names();
    check_start();
    nn::LoraConfig lora;
    lora.file = path_;
    lora.r = whole(at("r"), "r", 1, kMostRank);
    lora.lora_alpha = number("lora_alpha");
    if (lora.lora_alpha < 0.0) fail("'lora_alpha' is below 0");
    if (!std::isfinite(static_cast<float>(lora.lora_alpha))) fail("'lora_alpha' is too large");
    lora.lora_dropout = json_.contains("lora_dropout") ? number("lora_dropout") : 0.0;
    if (lora.lora_dropout < 0.0 || lora.lora_dropout >= 1.0)
      fail("'lora_dropout' is not in [0, 1)");
    lora.use_rslora = flag("use_rslora");
    lora.use_dora = flag("use_dora");
    lora.ensure_weight_tying = flag("ensure_weight_tying");
    if (const Json& bias = at("bias"); !bias.is_null()) {
      if (bias != "none" && bias != "lora_only" && bias != "all") {
        fail("has a 'bias' other than \"none\", \"lora_only\" and \"all\"");
      }
      lora.bias = bias.get<std::string>();
    }
    read_targets(lora);
    if (const Json& excluded = at("exclude_modules"); !is_empty(excluded)) {
      lora.exclude_modules = modules(excluded, "exclude_modules");
    }
    lora.layers_to_transform = layers();
    const Json ranks = mapping("rank_pattern");
    for (const auto& [pattern, value] : ranks.items()) {
      lora.rank_pattern.emplace_back(pattern, whole(value, "rank_pattern", 1, kMostRank));
    }
    const Json alphas = mapping("alpha_pattern");
    for (const auto& [pattern, value] : alphas.items()) {
      if (!value.is_number()) fail("has an 'alpha_pattern' whose values are not numbers");
      lora.alpha_pattern.emplace_back(pattern, value.get<double>());
    }
    if (const Json& saved = at("modules_to_save"); !saved.is_null()) {
      lora.modules_to_save = own_names(saved, "modules_to_save");
    }
    if (const Json& base = at("base_model_name_or_path"); !base.is_null()) {
      if (!base.is_string()) fail("'base_model_name_or_path' is no text");
      lora.base_model_name_or_path = base.get<std::string>();
    }
    return lora;
  }

 private:
  static bool is_empty(const Json& value) {
    return value.is_null() || (value.is_structured() && value.empty());
  }
  // A later PEFT may have settings that change what the adapter computes.
  void check_names() const {
    for (const auto& [name, value] : json_.items()) {
      const bool is_known = std::ranges::find(kRead, name) != kRead.end() ||
                            std::ranges::find(kUnused, name, [](const Unused& unused) {
                              return std::string_view(unused.name);
                            }) != kUnused.end();
      const bool is_set =
          !value.is_null() && value != false && !(value.is_structured() && value.empty());
      if (!is_known && is_set) {
        fail("sets '" + shortened(name, 100) +
             "', which PEFT 0.21 does not know and which may change what the adapter computes");
      }
    }
  }
  // These change the base's weights when PEFT loads the adapter.
  void check_start() const {
    const Json& start = at("init_lora_weights");
    const bool keeps_base = start.is_null() || start.is_boolean() || start == "gaussian" ||
                            start == "orthogonal" || start == "eva";
    if (keeps_base) return;
    fail("has init_lora_weights: " + shortened(start.dump(), 100) +
         ", which changes the base's weights and is not available; PEFT's save_pretrained with "
         "path_initial_model_for_weight_conversion makes it a plain adapter");
  }
  void read_targets(nn::LoraConfig& lora) const {
    lora.target_modules = modules(at("target_modules"), "target_modules");
    if (lora.target_modules.names == std::vector<std::string>{"all-linear"}) {
      lora.target_modules.is_pattern = false;
    }
    if (const Json& parameters = at("target_parameters"); !is_empty(parameters)) {
      lora.target_parameters = own_names(parameters, "target_parameters");
    }
    if (lora.target_modules.names.empty() && lora.target_parameters.empty()) {
      fail("'target_modules' is empty");
    }
  }
  // A text is a regular expression, a list holds names.
  [[nodiscard]] nn::ModuleNames modules(const Json& value, const char* name) const {
    if (!value.is_string()) {
      return {.names = own_names(value, name)};
    }
    return {.names = {value.get<std::string>()}, .is_pattern = true};
  }
  // Of an adapter of a model of images and text: its language model is trained here.
  [[nodiscard]] std::vector<std::string> own_names(const Json& value, const char* name) const {
    std::vector<std::string> modules = names(value, name);
    for (std::string& module : modules) module = name_in_language_model(module);
    return modules;
  }
  [[nodiscard]] std::vector<int64_t> layers() const {
    constexpr int64_t kMostLayers = 1'000'000;
    const Json& value = at("layers_to_transform");
    std::vector<int64_t> numbers;
    if (value.is_null()) return numbers;
    for (const Json& one : value.is_array() ? value : Json::array({value})) {
      numbers.push_back(whole(one, "layers_to_transform", 0, kMostLayers));
    }
    return numbers;
  }

  [[nodiscard]] const Json& at(const char* name) const {
    static const Json kNull;
    const auto found = json_.find(name);
    return found == json_.end() ? kNull : *found;
  }
  [[nodiscard]] int64_t whole(const Json& value, const char* name, int64_t least,
                              int64_t most) const {
    if (!value.is_number_integer() || value < least || value > most) {
      fail(format_text("'{}' is not a whole number from {} to {}", name, least, most));
    }
    return value.get<int64_t>();
  }
  [[nodiscard]] Json mapping(const char* name) const {
    const Json& value = at(name);
    if (!value.is_null() && !value.is_object()) fail(format_text("'{}' is no mapping", name));
    return value.is_null() ? Json::object() : value;
  }
  [[nodiscard]] bool flag(const char* name) const {
    const Json& value = at(name);
    if (!value.is_null() && !value.is_boolean())
      fail(format_text("'{}' is neither true nor false", name));
    return value == true;
  }
  [[nodiscard]] double number(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number()) fail(format_text("'{}' is not a number", name));
    return value.get<double>();
  }
  [[nodiscard]] std::vector<std::string> names(const Json& list, const char* name) const {
    std::vector<std::string> result;
    for (const Json& one : list.is_array() ? list : Json::array({nullptr})) {
      if (!one.is_string()) fail(format_text("'{}' is no list of names", name));
      result.push_back(one.get<std::string>());
    }
    return result;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::kData, "'" + path_ + "' " + why);
  }

  Json json_;
  std::string path_;
};

Json read_adapter_json(const std::string& folder) {
  return read_json_file(join_path(folder, kAdapterConfigFile), ErrorKind::kData,
                        {.max_bytes = 16 << 20});
}

bool is_adapter_folder(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  return files.exists(join_path(folder, kAdapterConfigFile)) &&
         !files.exists(join_path(folder, kConfigFile));
}

}  // namespace

std::optional<nn::LoraConfig> read_adapter_config(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(folder, kAdapterConfigFile);
  if (!files.exists(path)) return std::nullopt;
  if (!is_adapter_folder(folder)) {
    if (!files.exists(join_path(folder, kAdapterFile))) return std::nullopt;
    // PEFT and transformers take the adapter, other programs the model.
    throw Error(ErrorKind::kData, "'" + folder + "' holds a model (" + kConfigFile +
                                      ") and an adapter (" + kAdapterConfigFile +
                                      "), so that it is not clear which one is meant; move the " +
                                      "files of one of them to another folder");
  }
  return parse_adapter_config(read_adapter_json(folder), path);
}

nn::LoraConfig parse_adapter_config(Json json, const std::string& path) {
  return AdapterReader(std::move(json), path).read();
}

namespace {

// The ends of transformers' classes and PEFT's task types.
constexpr std::array<std::pair<const char*, const char*>, 6> kTaskTypes = {
    {{"ForCausalLM", "CAUSAL_LM"},
     {"LMHeadModel", "CAUSAL_LM"},
     {"ForSequenceClassification", "SEQ_CLS"},
     {"ForTokenClassification", "TOKEN_CLS"},
     {"ForQuestionAnswering", "QUESTION_ANS"},
     {"Model", "FEATURE_EXTRACTION"}}};

// PEFT's task type of a class of transformers; null: none.
Json task_type_of(const std::string& architecture) {
  for (const auto& [end, type] : kTaskTypes) {
    if (architecture.ends_with(end)) return type;
  }
  return nullptr;
}

// What PEFT needs to find the class of a base without a task type; else null.
Json auto_mapping_of(const Model& model) {
  if (!task_type_of(model.architecture()).is_null()) return nullptr;
  std::string module = model.config().model_type;
  std::ranges::replace(module, '-', '_');
  return {{"base_model_class", model.architecture()},
          {"parent_library", "transformers.models." + module + ".modeling_" + module}};
}

}  // namespace

// PEFT also saves the table of embed_tokens, if target_modules lists it by this end of its name.
// Its full name, as below, does not have that effect, and PEFT loads an adapter without the table
// to the same results.
std::set<std::string> adapted_modules(const Weights& weights) {
  std::set<std::string> modules;
  std::set<std::string> layers;
  for (const Weight& weight : weights) {
    if (weight.name().ends_with(".weight")) {
      layers.insert(weight.name().substr(0, weight.name().rfind('.')));
    }
  }
  for (const Weight& weight : weights) {
    const std::string& name = weight.name();
    for (const std::string_view factor : {std::string_view(".lora_A.weight"), kEmbeddingFactor}) {
      if (!name.ends_with(factor)) continue;
      const std::string module = name.substr(0, name.size() - factor.size());
      if (layers.contains(module)) modules.insert(module);  // else of a stack of experts
    }
  }
  return modules;
}

namespace {

// A name of the model as the class that PEFT adapts has it.
std::string name_for_peft(const std::string& name_in_whole, const std::string& name) {
  constexpr std::string_view kOwn = "model.";
  if (name_in_whole.empty() || !name.starts_with(kOwn)) return name;
  return name_in_whole + name.substr(kOwn.size());
}

// A name of PEFT's modules_to_save also means modules of the other parts of a whole, which the
// files do not have: there each has its full name.
std::vector<std::string> saved_modules(const Model& model) {
  const std::vector<std::string>& given = model.config().lora->modules_to_save;
  if (model.config().name_in_whole.empty()) return given;
  std::set<std::string> modules;
  for (const std::string& name : given) {
    bool is_found = false;
    for (const Weight& weight : model.weights()) {
      if (!nn::is_saved_whole(weight.name(), {name})) continue;
      const std::string module = weight.name().substr(0, weight.name().rfind('.'));
      modules.insert(name_for_peft(model.config().name_in_whole, module));
      is_found = true;
    }
    if (!is_found) modules.insert(name);
  }
  return {modules.begin(), modules.end()};
}

}  // namespace

std::string name_in_language_model(const std::string& module) {
  if (!module.starts_with(kInWhole)) return module;
  return "model." + module.substr(std::string_view(kInWhole).size());
}

std::string name_in_transformers(const std::string& weight) {
  constexpr std::string_view kRouter = ".router.layer.weight";
  if (weight.ends_with(kRouter)) {
    return weight.substr(0, weight.size() - kRouter.size()) + ".router.weight";
  }
  return nn::stacked_parameter(weight).name;
}

AdapterNames::AdapterNames(const Model& model)
    : name_in_whole_(model.config().name_in_whole),
      modules_(adapted_modules(model.weights())),
      tied_(tied_names(model.config())) {}

std::vector<std::string> AdapterNames::of(const std::string& parameter) const {
  constexpr std::string_view kBias = ".bias";
  if (!module_folder(parameter).empty()) return {parameter};  // no module of PEFT's model
  const auto named = [&](const std::string& name) {
    return kAdapterPrefix + name_for_peft(name_in_whole_, name);
  };
  std::vector<std::string> names = {named(parameter)};
  if (parameter.ends_with(kBias)) {
    const std::string module = parameter.substr(0, parameter.size() - kBias.size());
    if (modules_.contains(module)) names = {named(module) + ".base_layer.bias"};
  }
  for (const auto& [own, other] : tied_) {
    if (own == parameter) names.push_back(named(other));
  }
  return names;
}

std::string adapter_config_json(const Model& model) {
  FT_CHECK(model.config().lora.has_value(), "an adapter");
  const nn::LoraConfig& lora = *model.config().lora;
  Json json = Json::object();
  for (const Unused& unused : kUnused) json[unused.name] = Json::parse(unused.value);
  json["alpha_pattern"] = Json::object();
  for (const auto& [pattern, alpha] : lora.alpha_pattern) json["alpha_pattern"][pattern] = alpha;
  json["auto_mapping"] = auto_mapping_of(model);
  json["base_model_name_or_path"] = lora.base_model_name_or_path;
  json["bias"] = lora.bias;
  json["ensure_weight_tying"] = lora.ensure_weight_tying;
  const std::vector<std::string>& excluded = lora.exclude_modules.names;
  json["exclude_modules"] = excluded.empty() ? Json() : Json(excluded);
  if (lora.exclude_modules.is_pattern) json["exclude_modules"] = excluded.front();
  json["fan_in_fan_out"] = has_transposed_linear(model.config());
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  json["layers_to_transform"] =
      lora.layers_to_transform.empty() ? Json() : Json(lora.layers_to_transform);
  json["lora_alpha"] = lora.lora_alpha;
  json["lora_dropout"] = lora.lora_dropout;
  json["megatron_config"] = nullptr;
  json["megatron_core"] = "megatron.core";
  const std::vector<std::string> saved = saved_modules(model);
  json["modules_to_save"] = saved.empty() ? Json() : Json(saved);
  json["peft_type"] = "LORA";
  json["peft_version"] = "0.21.2";
  json["qalora_group_size"] = 16;
  json["r"] = lora.r;
  json["rank_pattern"] = Json::object();
  for (const auto& [pattern, rank] : lora.rank_pattern) json["rank_pattern"][pattern] = rank;
  json["revision"] = nullptr;
  std::set<std::string> targets;
  for (const std::string& name : adapted_modules(model.weights())) {
    targets.insert(name_for_peft(model.config().name_in_whole, name));
  }
  json["target_modules"] = targets;
  json["target_parameters"] =
      lora.target_parameters.empty() ? Json() : Json(lora.target_parameters);
  json["task_type"] = task_type_of(model.architecture());
  json["use_dora"] = lora.use_dora;
  json["use_rslora"] = lora.use_rslora;
  return nlohmann::json(json).dump(2) + "\n";  // sorted by name, as PEFT writes it
}

std::string adapter_architecture(const std::string& folder) {
  if (!is_adapter_folder(folder)) return "";
  const Json json = read_adapter_json(folder);
  if (!json.is_object()) return "";
  for (const auto& [end, type] : kTaskTypes) {
    if (json.value("task_type", Json()) == type) return end;
  }
  const Json mapping = json.value("auto_mapping", Json());
  const Json name = mapping.is_object() ? mapping.value("base_model_class", Json()) : Json();
  return name.is_string() ? name.get<std::string>() : "";
}

}  // namespace finetune
