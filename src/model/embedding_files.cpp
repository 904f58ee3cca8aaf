// SPDX-License-Identifier: MIT
#include "finetune/model/embedding_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/model/model.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Before version 5 the mode was a separate flag.
constexpr std::array<std::pair<const char*, const char*>, 4> kModeFlags = {
    {{"pooling_mode_cls_token", "cls"},
     {"pooling_mode_mean_tokens", "mean"},
     {"pooling_mode_lasttoken", "lasttoken"},
     {"pooling_mode_weightedmean_tokens", "weightedmean"}}};

// The classes of torch.nn, by the names of transformers.
struct DenseActivation {
  const char* name;
  const char* path;  // as in config.json
  const char* transformers;
};
constexpr std::array<DenseActivation, 6> kDenseActivations = {
    {{"Tanh", "torch.nn.modules.activation.Tanh", "tanh"},
     {"Identity", "torch.nn.modules.linear.Identity", "linear"},
     {"GELU", "torch.nn.modules.activation.GELU", "gelu"},
     {"ReLU", "torch.nn.modules.activation.ReLU", "relu"},
     {"SiLU", "torch.nn.modules.activation.SiLU", "silu"},
     {"Sigmoid", "torch.nn.modules.activation.Sigmoid", "sigmoid"}}};

const DenseActivation& of_name(const std::string& name) {
  const auto found = std::ranges::find(kDenseActivations, name,
                                       [](const auto& one) { return std::string(one.name); });
  FT_CHECK(found != kDenseActivations.end(), "an activation of a dense layer: " + name);
  return *found;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::kData, path + ": " + why);
}

Json read_object(const std::string& path) {
  Json json = read_json_file(path, ErrorKind::kData, {.max_bytes = 16 << 20});
  if (!json.is_object()) refuse(path, "is no JSON object; restore the file of the model");
  return json;
}

template <typename Value>
Value value_of(const Json& json, const char* name, Value otherwise, const std::string& path) {
  try {
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? otherwise : found->template get<Value>();
  } catch (const nlohmann::json::exception&) {
    refuse(path, std::string(name) + " holds " + json.at(name).type_name() +
                     ", which it cannot be; restore the file of the model");
  }
}

void read_pooling(const std::string& path, EmbeddingConfig& config) {
  const Json json = read_object(path);
  std::vector<std::string> modes;
  if (const auto named = json.find("pooling_mode"); named != json.end()) {
    modes = named->is_array() ? value_of(json, "pooling_mode", modes, path)
                              : std::vector{value_of(json, "pooling_mode", std::string(), path)};
  }
  for (const auto& [name, value] : json.items()) {
    if (!name.starts_with("pooling_mode_") || value != true) continue;
    const auto known = std::ranges::find(kModeFlags, name,
                                         [](const auto& flag) { return std::string(flag.first); });
    modes.push_back(known == kModeFlags.end() ? name : known->second);
  }
  if (modes.size() != 1 || std::ranges::find(pooling_modes(), modes[0]) == pooling_modes().end()) {
    config.refusal = path + ": asks for the pooling " + join(modes) + "; available is one of " +
                     join(pooling_modes());
    return;
  }
  config.pooling_mode = modes[0];
  config.include_prompt = value_of(json, "include_prompt", true, path);
}

// `module`: the folder in the model's.
void read_dense(const std::string& folder, const std::string& module, EmbeddingConfig& config) {
  const std::string path = join_path(join_path(folder, module), kConfigFile);
  const auto unavailable = [&](const std::string& what) {
    config.refusal = path + ": " + what + " is not available";
  };
  const Json json = read_object(path);
  DenseConfig dense{.module = module};
  dense.in_features = value_of(json, "in_features", int64_t{0}, path);
  dense.out_features = value_of(json, "out_features", int64_t{0}, path);
  if (std::min(dense.in_features, dense.out_features) < 1 ||
      std::max(dense.in_features, dense.out_features) > 1 << 20) {
    refuse(path, "in_features and out_features are not both from 1 to 1048576");
  }
  dense.bias = value_of(json, "bias", true, path);
  const auto function = value_of(json, "activation_function", std::string("Tanh"), path);
  dense.activation_function = function.substr(function.rfind('.') + 1);
  const auto known = dense_activations();
  if (std::ranges::find(known, dense.activation_function) == known.end()) {
    return unavailable("the activation_function " + function);
  }
  if (value_of(json, "use_residual", false, path)) return unavailable("use_residual");
  for (const char* name : {"module_input_name", "module_output_name"}) {
    constexpr char kVector[] = "sentence_embedding";
    const auto value = value_of(json, name, std::string(kVector), path);
    if (value != kVector) return unavailable(std::string(name) + " '" + value + "'");
  }
  if (!config.dense.empty() && config.dense.back().out_features != dense.in_features) {
    refuse(path, format_text("in_features is {}, and the layer before it returns {}",
                             dense.in_features, config.dense.back().out_features));
  }
  config.dense.push_back(std::move(dense));
}

void read_module(const std::string& folder, const Json& module, EmbeddingConfig& config) {
  const std::string path = join_path(folder, kModulesFile);
  const auto type = value_of(module, "type", std::string(), path);
  const std::string name = type.substr(type.rfind('.') + 1);
  const auto own = value_of(module, "path", std::string(), path);
  if (name == "Transformer" && own.empty()) return;
  if (name == "Normalize") {
    config.normalize = true;
    return;
  }
  const bool is_inside = !own.empty() && own.front() != '/' && own.find("..") == own.npos;
  const bool is_pooled = !config.pooling_mode.empty();
  if (!config.refusal.empty()) return;
  if (name == "Pooling" && is_inside && !is_pooled) {
    return read_pooling(join_path(join_path(folder, own), kConfigFile), config);
  }
  if (name == "Dense" && is_pooled && !config.normalize && is_module_folder_name(own)) {
    return read_dense(folder, own, config);
  }
  config.refusal = path + ": has the module '" + type +
                   "', which is not available here; available are Transformer, Pooling, Dense and "
                   "Normalize, in this order";
}

}  // namespace

const std::vector<std::string>& pooling_modes() {
  static const std::vector<std::string> kModes = {"mean", "cls", "lasttoken", "weightedmean"};
  return kModes;
}

std::vector<std::string> dense_activations() {
  std::vector<std::string> names;
  for (const DenseActivation& one : kDenseActivations) names.emplace_back(one.name);
  return names;
}

std::string transformers_activation(const DenseConfig& dense) {
  return of_name(dense.activation_function).transformers;
}

void require_embedding(const ModelConfig& config, const std::string& folder) {
  const EmbeddingConfig& own = config.embedding;
  if (!own.refusal.empty()) throw Error(ErrorKind::kData, own.refusal);
  if (!own.truncate_dim || *own.truncate_dim >= embedding_dimension(config)) return;
  throw Error(ErrorKind::kData,
              format_text("'{}' has truncate_dim {}: of its vectors only the first dimensions are "
                          "meant; write a model that has no others by: finetune export {} OUT "
                          "--dims {}",
                          join_path(folder, kSentenceModelFile), *own.truncate_dim, folder,
                          *own.truncate_dim));
}

std::optional<EmbeddingConfig> read_embedding_config(const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const auto in_folder = [&](const char* name) { return join_path(folder, name); };
  const std::string modules_path = in_folder(kModulesFile);
  if (!files.exists(modules_path)) return std::nullopt;
  const Json modules = read_json_file(modules_path, ErrorKind::kData, {.max_bytes = 1 << 20});
  if (!modules.is_array() || modules.empty()) refuse(modules_path, "is no list of modules");
  EmbeddingConfig config;
  for (const Json& module : modules) {
    if (!module.is_object()) refuse(modules_path, "is no list of modules");
    read_module(folder, module, config);
  }
  if (const std::string path = in_folder(kSentenceConfigFile); files.exists(path)) {
    const auto length = value_of(read_object(path), "max_seq_length", int64_t{0}, path);
    if (length < 0) refuse(path, "max_seq_length is below 0");
    if (length > 0) config.max_seq_length = length;
  }
  if (const std::string path = in_folder(kSentenceModelFile); files.exists(path)) {
    const Json json = read_object(path);
    const Json prompts = value_of(json, "prompts", Json::object(), path);
    for (const auto& [name, text] : prompts.items()) {
      if (!text.is_string()) refuse(path, "prompts holds a value that is no text");
      config.prompts.emplace_back(name, text.get<std::string>());
    }
    const auto dims = value_of(json, "truncate_dim", int64_t{0}, path);
    if (dims > 0) config.truncate_dim = dims;
    config.similarity_fn_name =
        value_of(json, "similarity_fn_name", config.similarity_fn_name, path);
  }
  return config;
}

std::string pooling_mode_of(const ModelConfig& config) {
  if (!config.embedding.pooling_mode.empty()) return config.embedding.pooling_mode;
  return is_causal(config) ? "lasttoken" : "mean";
}

int64_t embedding_dimension(const ModelConfig& config) {
  const auto& dense = config.embedding.dense;
  return dense.empty() ? config.hidden_size : dense.back().out_features;
}

std::vector<std::pair<std::string, std::string>> embedding_files(const ModelConfig& config,
                                                                 int64_t max_seq_length) {
  const EmbeddingConfig& own = config.embedding;
  Json modules = Json::array();
  const auto add = [&](const std::string& path, const std::string& type) {
    const std::string number = std::to_string(modules.size());
    modules.push_back({{"idx", modules.size()},
                       {"name", number},
                       {"path", path},
                       {"type", "sentence_transformers.models." + type}});
  };
  add("", "Transformer");
  add("1_Pooling", "Pooling");
  const auto text = [](const Json& json) { return json.dump(2) + "\n"; };
  std::vector<std::pair<std::string, std::string>> files;
  for (const DenseConfig& dense : own.dense) {
    add(dense.module, "Dense");
    const Json layer = {{"in_features", dense.in_features},
                        {"out_features", dense.out_features},
                        {"bias", dense.bias},
                        {"activation_function", of_name(dense.activation_function).path}};
    files.emplace_back(dense.module + "/" + kConfigFile, text(layer));
  }
  if (own.normalize) add(std::to_string(2 + own.dense.size()) + "_Normalize", "Normalize");
  Json pooling = {{"word_embedding_dimension", config.hidden_size}};
  for (const auto& [flag, mode] : kModeFlags) pooling[flag] = pooling_mode_of(config) == mode;
  pooling["include_prompt"] = own.include_prompt;
  Json prompts = Json::object();
  for (const auto& [name, prompt] : own.prompts) prompts[name] = prompt;
  const Json model = {{"__version__", Json::object()},
                      {"prompts", std::move(prompts)},
                      {"default_prompt_name", nullptr},
                      {"similarity_fn_name", own.similarity_fn_name}};
  const Json sentences = {{"max_seq_length", max_seq_length}, {"do_lower_case", false}};
  files.emplace_back(kModulesFile, text(modules));
  files.emplace_back(kPoolingFile, text(pooling));
  files.emplace_back(kSentenceConfigFile, text(sentences));
  files.emplace_back(kSentenceModelFile, text(model));
  return files;
}

}  // namespace finetune
