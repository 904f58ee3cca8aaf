// SPDX-License-Identifier: MIT
#include "model/adapter_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/model/model_folder.h"
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

// The other settings: those that are read, and those that change no result of a saved adapter.
constexpr std::array<std::string_view, 20> kRead = {"alpha_pattern",
                                                    "auto_mapping",
                                                    "base_model_name_or_path",
                                                    "ensure_weight_tying",
                                                    "exclude_modules",
                                                    "fan_in_fan_out",
                                                    "inference_mode",
                                                    "init_lora_weights",
                                                    "lora_alpha",
                                                    "lora_dropout",
                                                    "megatron_core",
                                                    "modules_to_save",
                                                    "peft_type",
                                                    "peft_version",
                                                    "qalora_group_size",
                                                    "r",
                                                    "revision",
                                                    "target_modules",
                                                    "task_type",
                                                    "use_rslora"};

class AdapterReader {
 public:
  AdapterReader(Json json, std::string path) : json_(std::move(json)), path_(std::move(path)) {
    if (!json_.is_object()) fail("is no JSON object");
  }

  nn::LoraConfig read() const {
    if (at("peft_type") != "LORA") {
      fail("holds an adapter of type " + shortened(at("peft_type").dump(), 100) +
           "; only LORA is available");
    }
    for (const Unused& unused : kUnused) {
      const Json value = json_.value(unused.name, Json());
      const bool is_empty = value.is_null() || (value.is_structured() && value.empty());
      if (is_empty || value == Json::parse(unused.value)) continue;
      fail(format_text("sets '{}', which is not available in this version", unused.name));
    }
    check_names();
    check_start();
    nn::LoraConfig lora;
    lora.file = path_;
    lora.r = integer("r", 1, kMostRank);
    lora.lora_alpha = number("lora_alpha");
    lora.lora_dropout = json_.contains("lora_dropout") ? number("lora_dropout") : 0.0;
    if (lora.lora_dropout < 0.0 || lora.lora_dropout >= 1.0)
      fail("'lora_dropout' is not in [0, 1)");
    lora.use_rslora = is_true("use_rslora");
    read_targets(lora);
    if (const Json& saved = at("modules_to_save"); !saved.is_null()) {
      lora.modules_to_save = names(saved, "modules_to_save");
    }
    if (const Json& base = at("base_model_name_or_path"); !base.is_null()) {
      if (!base.is_string()) fail("'base_model_name_or_path' is no text");
      lora.base_model_name_or_path = base.get<std::string>();
    }
    return lora;
  }

 private:
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
  [[nodiscard]] bool is_true(const char* name) const {
    const Json& value = at(name);
    if (!value.is_null() && !value.is_boolean()) {
      fail(format_text("'{}' is neither true nor false", name));
    }
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

}  // namespace

std::optional<nn::LoraConfig> read_adapter_config(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const std::string path = join_path(folder, kAdapterConfigFile);
  if (!files.exists(path)) return std::nullopt;
  if (files.exists(join_path(folder, kConfigFile))) {
    if (!files.exists(join_path(folder, kAdapterFile))) return std::nullopt;
    // PEFT and transformers take the adapter, other programs the model.
    throw Error(ErrorKind::kData, "'" + folder + "' holds a model (" + kConfigFile +
                                      ") and an adapter (" + kAdapterConfigFile +
                                      "), so that it is not clear which one is meant; move the " +
                                      "files of one of them to another folder");
  }
  return parse_adapter_config(read_json_file(path, ErrorKind::kData, {.max_bytes = 16 << 20}),
                              path);
}

nn::LoraConfig parse_adapter_config(Json json, const std::string& path) {
  return AdapterReader(std::move(json), path).read();
}

namespace {

// PEFT's task type of a class of transformers; null: none.
Json task_type_of(const std::string& architecture) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kTypes = {
      {{"ForCausalLM", "CAUSAL_LM"},
       {"LMHeadModel", "CAUSAL_LM"},
       {"ForSequenceClassification", "SEQ_CLS"},
       {"ForTokenClassification", "TOKEN_CLS"},
       {"ForQuestionAnswering", "QUESTION_ANS"}}};
  for (const auto& [end, type] : kTypes) {
    if (architecture.ends_with(end)) return type;
  }
  return nullptr;
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
  json["auto_mapping"] = nullptr;
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

}  // namespace finetune
