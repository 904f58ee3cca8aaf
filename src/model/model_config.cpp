// SPDX-License-Identifier: MIT
#include "finetune/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Every field once: reading, overriding and writing visit this list.
template <class Config, class Visitor>
void describe(Config& c, Visitor&& field) {
  field("vocab_size", c.vocab_size, 1, 4 << 20);
  field("hidden_size", c.hidden_size, 1, 65536);
  field("num_hidden_layers", c.num_hidden_layers, 1, 512);
  field("num_attention_heads", c.num_attention_heads, 1, 1024);
  field("intermediate_size", c.intermediate_size, 1, 1 << 20);
  field("max_position_embeddings", c.max_position_embeddings, 4, 1 << 16);
  field("type_vocab_size", c.type_vocab_size, 1, 1024);
  field("pad_token_id", c.pad_token_id, 0, 4 << 20);
  field("bos_token_id", c.bos_token_id, 0, 4 << 20);
  field("eos_token_id", c.eos_token_id, 0, 4 << 20);
  field("hidden_dropout_prob", c.hidden_dropout_prob, 0.0, 0.99);
  field("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 0.0, 0.99);
  field("initializer_range", c.initializer_range, 0.0, 10.0);
  field("layer_norm_eps", c.layer_norm_eps, 0.0, 1.0);
  field("tie_word_embeddings", c.tie_word_embeddings);
  field("hidden_act", c.hidden_act);
  field("model_type", c.model_type);
}

class Reader {
 public:
  Reader(const Json& json, std::string where, ErrorKind kind)
      : json_(json), where_(std::move(where)), kind_(kind) {}

  void operator()(const char* name, int64_t& value, int64_t low, int64_t high) const {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_number_integer()) refuse(name, *found, "a whole number");
    const double wide = found->get<double>();  // an unsigned value above 2^63 stays positive
    if (wide < static_cast<double>(low) || wide > static_cast<double>(high)) {
      refuse(name, *found, "between " + std::to_string(low) + " and " + std::to_string(high));
    }
    value = found->get<int64_t>();
  }

  void operator()(const char* name, double& value, double low, double high) const {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_number()) refuse(name, *found, "a number");
    const double number = found->get<double>();
    if (!(number >= low && number <= high)) {
      refuse(name, *found, "between " + format_double(low) + " and " + format_double(high));
    }
    value = number;
  }

  void operator()(const char* name, bool& value) const {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_boolean()) refuse(name, *found, "true or false");
    value = found->get<bool>();
  }

  void operator()(const char* name, std::string& value) const {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return;
    if (!found->is_string()) refuse(name, *found, "a text");
    value = found->get<std::string>();
  }

 private:
  [[noreturn]] void refuse(const char* name, const Json& value, const std::string& expected) const {
    throw Error(kind_, where_ + ": '" + name + "' is " + value.dump().substr(0, 80) +
                           ", but must be " + expected);
  }

  const Json& json_;
  std::string where_;
  ErrorKind kind_;
};

std::vector<std::string> field_names() {
  std::vector<std::string> names;
  ModelConfig config;
  describe(config, [&](const char* name, const auto&...) { names.emplace_back(name); });
  return names;
}

void check_whole(const ModelConfig& config, const std::string& where, ErrorKind kind) {
  static const std::vector<std::string> kActivations = {
      "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"};
  const auto refuse = [&](const std::string& why) { throw Error(kind, where + ": " + why); };
  if (config.model_type != "roberta") {
    refuse("model_type '" + config.model_type +
           "' is not available in this version; models of type 'roberta' are");
  }
  if (std::find(kActivations.begin(), kActivations.end(), config.hidden_act) ==
      kActivations.end()) {
    refuse("hidden_act '" + config.hidden_act + "' is not known" +
           did_you_mean(config.hidden_act, kActivations));
  }
  if (config.hidden_size % config.num_attention_heads != 0) {
    refuse("hidden_size " + std::to_string(config.hidden_size) +
           " does not divide by num_attention_heads " + std::to_string(config.num_attention_heads));
  }
  if (config.pad_token_id >= config.vocab_size) {
    refuse("pad_token_id " + std::to_string(config.pad_token_id) + " lies beyond vocab_size " +
           std::to_string(config.vocab_size));
  }
  if (config.max_length() < 2) {
    refuse("max_position_embeddings " + std::to_string(config.max_position_embeddings) +
           " leaves no room for a sequence (positions begin behind pad_token_id)");
  }
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must hold a JSON object");
  if (!json.contains("model_type")) {
    throw Error(ErrorKind::kData, where + ": has no 'model_type'; is this a Hugging Face model?");
  }
  const auto is_set = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && !found->is_null() && *found != false;
  };
  if (is_set("is_decoder") || is_set("add_cross_attention")) {
    throw Error(ErrorKind::kData, where + ": decoders are not supported, only encoders");
  }
  const auto positions = json.find("position_embedding_type");
  if (positions != json.end() && !positions->is_null() && *positions != "absolute") {
    throw Error(ErrorKind::kData, where + ": position_embedding_type " + positions->dump() +
                                      " is not supported, only 'absolute'");
  }
  ModelConfig config;
  describe(config, Reader(json, where, ErrorKind::kData));
  check_whole(config, where, ErrorKind::kData);
  return config;
}

ModelConfig read_model_config(const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  if (FileSystem::local().type(path) == FileType::kMissing) {
    throw Error(ErrorKind::kConfig, "model_name_or_path: there is no '" + path +
                                        "'; name a folder with config.json and model.safetensors");
  }
  return parse_model_config(read_json_file(path, ErrorKind::kData, {.max_bytes = 1 << 20}), path);
}

ModelConfig override_model_config(const ModelConfig& base, const Json& overrides) {
  const std::vector<std::string> names = field_names();
  for (const auto& item : overrides.items()) {
    if (std::find(names.begin(), names.end(), item.key()) == names.end()) {
      throw Error(ErrorKind::kConfig, "config_overrides: '" + item.key() +
                                          "' is no field of the model" +
                                          did_you_mean(item.key(), names));
    }
  }
  ModelConfig config = base;
  describe(config, Reader(overrides, "config_overrides", ErrorKind::kConfig));
  check_whole(config, "config_overrides", ErrorKind::kConfig);
  return config;
}

std::string model_config_json(const ModelConfig& config, const std::string& architecture) {
  nlohmann::json json = {{"architectures", {architecture}},
                         {"add_cross_attention", false},
                         {"classifier_dropout", nullptr},
                         {"dtype", "float32"},
                         {"is_decoder", false},
                         {"use_cache", true}};
  describe(config,
           [&](const char* name, const auto& value, const auto&...) { json[name] = value; });
  return json.dump(2) + "\n";  // nlohmann::json sorts keys, as transformers does
}

}  // namespace finetune
