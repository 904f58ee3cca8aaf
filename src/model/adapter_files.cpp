// SPDX-License-Identifier: MIT
#include "model/adapter_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/model/adapter.h"
#include "finetune/model/model_folder.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostRank = int64_t{1} << 16;

// Settings that change what the adapter computes, with the value that means "not used".
struct Unused {
  const char* name;
  const char* value;  // as JSON
};
constexpr std::array<Unused, 22> kUnused = {{{"alora_invocation_tokens", "null"},
                                             {"alpha_pattern", "{}"},
                                             {"arrow_config", "null"},
                                             {"bias", R"("none")"},
                                             {"corda_config", "null"},
                                             {"eva_config", "null"},
                                             {"exclude_modules", "null"},
                                             {"kasa_config", "null"},
                                             {"layer_replication", "null"},
                                             {"layers_pattern", "null"},
                                             {"layers_to_transform", "null"},
                                             {"loftq_config", "{}"},
                                             {"lora_bias", "false"},
                                             {"lora_ga_config", "null"},
                                             {"monteclora_config", "null"},
                                             {"rank_pattern", "{}"},
                                             {"target_parameters", "null"},
                                             {"trainable_token_indices", "null"},
                                             {"use_bdlora", "null"},
                                             {"use_dora", "false"},
                                             {"use_qalora", "false"},
                                             {"velora_config", "null"}}};

class AdapterReader {
 public:
  AdapterReader(Json json, std::string path) : json_(std::move(json)), path_(std::move(path)) {
    if (!json_.is_object()) fail("is no JSON object");
  }

  nn::LoraConfig read() const {
    if (at("peft_type") != "LORA") {
      fail("holds an adapter of type " + at("peft_type").dump() + "; only LORA is available");
    }
    for (const Unused& unused : kUnused) {
      const Json value = json_.value(unused.name, Json());
      const bool is_empty = value.is_null() || (value.is_structured() && value.empty());
      if (is_empty || value == Json::parse(unused.value)) continue;
      fail(format_text("sets '{}', which is not available in this version", unused.name));
    }
    nn::LoraConfig lora;
    lora.r = integer("r", 1, kMostRank);
    lora.lora_alpha = number("lora_alpha");
    lora.lora_dropout = json_.contains("lora_dropout") ? number("lora_dropout") : 0.0;
    if (lora.lora_dropout < 0.0 || lora.lora_dropout >= 1.0)
      fail("'lora_dropout' is not in [0, 1)");
    lora.use_rslora = json_.value("use_rslora", Json(false)) == true;
    read_targets(lora);
    if (const Json& saved = at("modules_to_save"); !saved.is_null()) {
      lora.modules_to_save = names(saved, "modules_to_save");
    }
    if (const Json& base = at("base_model_name_or_path"); base.is_string()) {
      lora.base_model_name_or_path = base.get<std::string>();
    }
    return lora;
  }

 private:
  void read_targets(nn::LoraConfig& lora) const {
    const Json& targets = at("target_modules");
    if (targets.is_string()) {
      lora.target_modules = {targets.get<std::string>()};
      lora.is_pattern = lora.target_modules.front() != "all-linear";
    } else {
      lora.target_modules = names(targets, "target_modules");
    }
    if (lora.target_modules.empty()) fail("'target_modules' is empty");
  }

  [[nodiscard]] const Json& at(const char* name) const {
    static const Json kNull;
    const auto found = json_.find(name);
    return found == json_.end() ? kNull : *found;
  }
  [[nodiscard]] int64_t integer(const char* name, int64_t least, int64_t most) const {
    const Json& value = at(name);
    if (!value.is_number_integer() || value < least || value > most) {
      fail(format_text("'{}' is not a whole number from {} to {}", name, least, most));
    }
    return value.get<int64_t>();
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
  if (!is_adapter_folder(folder)) return std::nullopt;
  return AdapterReader(read_adapter_json(folder), join_path(folder, kAdapterConfigFile)).read();
}

namespace {

// The ends of transformers' classes and PEFT's task types.
constexpr std::array<std::pair<const char*, const char*>, 5> kTaskTypes = {
    {{"ForCausalLM", "CAUSAL_LM"},
     {"LMHeadModel", "CAUSAL_LM"},
     {"ForSequenceClassification", "SEQ_CLS"},
     {"ForTokenClassification", "TOKEN_CLS"},
     {"ForQuestionAnswering", "QUESTION_ANS"}}};

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

// The full names of the layers that have an adapter, as PEFT writes all-linear.
std::vector<std::string> adapted_modules(const Weights& weights) {
  constexpr std::string_view kFirstFactor = ".lora_A.weight";
  std::vector<std::string> modules;
  for (const Weight& weight : weights) {
    const std::string& name = weight.name();
    if (name.ends_with(kFirstFactor)) {
      modules.push_back(name.substr(0, name.size() - kFirstFactor.size()));
    }
  }
  std::ranges::sort(modules);
  return modules;
}

}  // namespace

std::string adapter_config_json(const Model& model) {
  FT_CHECK(model.config().lora.has_value(), "an adapter");
  const nn::LoraConfig& lora = *model.config().lora;
  Json json = Json::object();
  for (const Unused& unused : kUnused) json[unused.name] = Json::parse(unused.value);
  json["auto_mapping"] = auto_mapping_of(model);
  json["base_model_name_or_path"] = lora.base_model_name_or_path;
  json["ensure_weight_tying"] = false;
  json["fan_in_fan_out"] = model.config().model_type == "gpt2";
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  json["lora_alpha"] = lora.lora_alpha;
  json["lora_dropout"] = lora.lora_dropout;
  json["megatron_config"] = nullptr;
  json["megatron_core"] = "megatron.core";
  json["modules_to_save"] = lora.modules_to_save.empty() ? Json() : Json(lora.modules_to_save);
  json["peft_type"] = "LORA";
  json["peft_version"] = "0.21.2";
  json["qalora_group_size"] = 16;
  json["r"] = lora.r;
  json["revision"] = nullptr;
  json["target_modules"] = adapted_modules(model.weights());
  json["task_type"] = task_type_of(model.architecture());
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
