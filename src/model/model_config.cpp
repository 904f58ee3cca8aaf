// SPDX-License-Identifier: MIT
#include "finetune/model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/nearest.h"
#include "finetune/base/printable.h"
#include "finetune/model/embedding_files.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/model_tensors.h"
#include "finetune/tensor/weight_files.h"
#include "model/activation_names.h"
#include "model/adapter_files.h"
#include "model/architecture.h"
#include "model/config_fields.h"
#include "model/laya.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// A model of images and text, and its language model.
struct LanguageModel {
  std::string_view whole, model_type;
  const char* name_in_whole;  // ModelConfig's
};
constexpr std::array<LanguageModel, 6> kLanguageModels = {
    {{"gemma3", "gemma3_text", kInWhole},
     {"gemma3n", "gemma3n_text", kInWhole},
     {"gemma4", "gemma4_text", kInWhole},
     {"lfm2_vl", "lfm2", kInWhole},
     {"mistral3", "mistral", kInWhole},
     // AutoModelForCausalLM has a class for it alone.
     {"qwen3_5", "qwen3_5_text", ""}}};

// Null for other models.
const LanguageModel* language_model_in(std::string_view model_type) {
  const auto* found = std::ranges::find(kLanguageModels, model_type, &LanguageModel::whole);
  return found == kLanguageModels.end() ? nullptr : found;
}

constexpr int64_t kMaxLabels = 1 << 20;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> field_names(ModelConfig config) {
  std::vector<std::string> names = {"model_type", "id2label", "num_labels", "problem_type"};
  for (const ConfigField& field : architecture_of(config).fields(config)) {
    names.emplace_back(field.name);
    if (std::holds_alternative<RopeByLayerType*>(field.target)) {
      names.insert(names.end(), {"rope_theta", "rope_scaling", "partial_rotary_factor",
                                 "rope_local_base_freq", "global_rope_theta", "local_rope_theta"});
    }
  }
  return names;
}

std::vector<std::string> numbered_labels(int64_t count) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

// Parses {"0": "no", "1": "yes"}: the numbers from 0 on without gaps, in any order.
std::vector<std::string> parse_labels(const Json& map, const std::string& where, ErrorKind kind) {
  const auto refuse = [&](const std::string& why) {
    throw Error(kind, where + ": 'id2label' " + why);
  };
  if (!map.is_object() || map.empty()) refuse("must map numbers from 0 on to names");
  if (map.size() > kMaxLabels) refuse("holds more than " + std::to_string(kMaxLabels) + " labels");
  std::map<std::string, const Json*> by_number;
  for (const auto& [number, label] : map.items()) by_number[number] = &label;
  std::vector<std::string> labels;
  for (size_t i = 0; i < map.size(); ++i) {
    const auto found = by_number.find(std::to_string(i));
    if (found == by_number.end()) {
      refuse("holds " + std::to_string(map.size()) + " labels, but none of number " +
             std::to_string(i) + "; number them from 0 on without a gap");
    }
    if (!found->second->is_string()) refuse("names number " + std::to_string(i) + " by no text");
    labels.push_back(found->second->get<std::string>());
  }
  return labels;
}

void read_fields(ModelConfig& config, const Json& json, const std::string& where, ErrorKind kind) {
  ConfigFields fields = architecture_of(config).fields(config);
  fields.push_back({.name = "problem_type", .target = &config.problem_type});
  read_config_fields(fields, json, where, kind);
  const auto labels = json.find("id2label");
  if (labels != json.end() && !labels->is_null()) {
    config.id2label = parse_labels(*labels, where, kind);
  } else if (json.contains("num_labels")) {
    auto count = static_cast<int64_t>(config.id2label.size());
    read_config_fields({{.name = "num_labels", .target = &count, .low = 1, .high = kMaxLabels}},
                       json, where, kind);
    if (count != static_cast<int64_t>(config.id2label.size())) {
      config.id2label = numbered_labels(count);
    }
  }
}

void check_names(const ModelConfig& config, const std::string& where, ErrorKind kind) {
  const auto check = [&](const char* field, const std::string& value,
                         const std::vector<std::string>& known) {
    if (contains(known, value)) return;
    throw Error(
        kind, where + ": " + field + " '" + value + "' is not known" + did_you_mean(value, known));
  };
  const bool is_xielu = config.hidden_act == "xielu";
  if (config.hidden_act == "prelu" || (is_xielu && !architecture_of(config).has_xielu())) {
    throw Error(kind, where + ": hidden_act '" + config.hidden_act +
                          "' has weights and is not available in this version");
  }
  if (!is_xielu) check("hidden_act", config.hidden_act, activation_names());
  check("attention_type", config.attention_type, {"original_full", "block_sparse"});
  if (config.bigbird_compat) check("bigbird_compat", *config.bigbird_compat, {"huggingface"});
  if (!config.problem_type) return;
  check("problem_type", *config.problem_type,
        {"regression", "single_label_classification", "multi_label_classification"});
  if (*config.problem_type == "single_label_classification" && config.id2label.size() == 1) {
    throw Error(kind, where +
                          ": problem_type 'single_label_classification' needs two labels or more; "
                          "one label is a 'regression'");
  }
}

void check_whole(ModelConfig& config, const std::string& where, ErrorKind kind) {
  const auto refuse = [&](const std::string& why) { throw Error(kind, where + ": " + why); };
  check_names(config, where, kind);
  architecture_of(config).complete(config, refuse);
  if (config.max_length() < 2) {
    refuse("max_position_embeddings " + std::to_string(config.max_position_embeddings) +
           " leaves no room for a sequence of two tokens");
  }
}

// Returns the defaults of the family's class without derived values.
ModelConfig bare_defaults(const std::string& model_type) {
  ModelConfig config;
  config.model_type = model_type;
  architecture_of(config).set_defaults(config);
  return config;
}

ModelConfig defaults_of(const std::string& model_type, const std::string& where, ErrorKind kind) {
  if (!contains(model_types(), model_type)) {
    std::string list;
    for (const std::string& type : model_types()) list += (list.empty() ? "'" : ", '") + type + "'";
    throw Error(kind, where + ": model_type '" + model_type +
                          "' is not available in this version; models of these types are: " + list);
  }
  return bare_defaults(model_type);
}

// Sets whether the folder's matrices are in bitsandbytes' NF4, or those of gpt-oss' experts in
// MXFP4. Refuses other quantised weights.
void read_quantization(const Json& json, const std::string& where, ModelConfig& config) {
  const auto found = json.find("quantization_config");
  if (found == json.end() || found->is_null()) return;
  const auto text = [&](const char* key) {
    const auto value = found->is_object() ? found->find(key) : found->end();
    return found->is_object() && value != found->end() && value->is_string()
               ? value->get<std::string>()
               : std::string();
  };
  const bool has_bits = found->is_object() && found->value("load_in_4bit", Json()) == true;
  const std::string type = text("bnb_4bit_quant_type");
  const bool is_others = text("quant_method") != "bitsandbytes" && !text("quant_method").empty();
  const bool is_int8 = found->is_object() && found->value("load_in_8bit", Json()) == true;
  config.is_nf4 = has_bits && type == "nf4" && !is_others && !is_int8;
  config.is_mxfp4 = text("quant_method") == "mxfp4" && config.model_type == "gpt_oss";
  if (config.is_nf4 || config.is_mxfp4) return;
  const std::string method = text("quant_method").empty() ? "?" : text("quant_method");
  throw Error(ErrorKind::kData,
              where + ": 'quantization_config' names " +
                  printable(is_int8                  ? std::string("LLM.int8")
                            : has_bits && !is_others ? "the type " + (type.empty() ? "fp4" : type)
                                                     : "the method " + method) +
                  ", but of quantized weights only bitsandbytes' nf4, and mxfp4 of gpt_oss, can be "
                  "read; take the model's "
                  "folder in bfloat16, float16 or float32, and load_in_4bit: true");
}

bool has_rope_parameters(const Architecture& architecture) {
  ModelConfig defaults = bare_defaults(architecture.model_type());
  return std::ranges::any_of(architecture.fields(defaults), [](const ConfigField& field) {
    return field.name == std::string_view("rope_parameters");
  });
}

void refuse_unsupported(const Architecture& architecture, const Json& json,
                        const std::string& where) {
  for (const char* name : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
    if (architecture.is_causal() && std::string_view(name) == "is_decoder") continue;
    const auto found = json.find(name);
    if (found != json.end() && !found->is_null() && *found != false) {
      const std::string why = "decoders are not supported, only encoders";
      if (!architecture.is_causal()) throw Error(ErrorKind::kData, where + ": " + why);
      throw Error(ErrorKind::kData, where + ": '" + name + "' is " + found->dump() +
                                        ", but a decoder that reads an encoder is not available "
                                        "in this version");
    }
  }
  // transformers takes another mask then.
  const auto causal = json.find("is_causal");
  if (causal != json.end() && !causal->is_null() && *causal != architecture.is_causal()) {
    throw Error(ErrorKind::kData,
                where + ": is_causal is " + causal->dump() + ", but a " +
                    architecture.model_type() +
                    (architecture.is_causal() ? " whose tokens attend to later ones is"
                                              : " whose tokens attend to earlier ones alone is") +
                    " not available in this version");
  }
  const auto positions = json.find("position_embedding_type");
  if (positions == json.end() || positions->is_null() || *positions == "absolute") return;
  if (*positions != "rope" || !has_rope_parameters(architecture)) {
    throw Error(ErrorKind::kData, where + ": position_embedding_type " + positions->dump() +
                                      " is not supported, only 'absolute'");
  }
}

// Returns the entries that saving must keep. The names listed here are written again or derived.
Json unknown_fields(const Json& json, const ModelConfig& config) {
  Json others = json;
  for (const std::string& name : field_names(config)) others.erase(name);
  for (const char* name : {"label2id", "_num_labels", "architectures", "dtype", "torch_dtype",
                           "transformers_version", "_name_or_path", "quantization_config"}) {
    others.erase(name);
  }
  if (architecture_of(config).is_causal()) return others;
  for (const char* name : {"is_decoder", "add_cross_attention"}) others.erase(name);
  return others;
}

// Makes an object in the order of `fields`. Appending to ordered_json by name would search it each
// time.
template <class Fields>
Json to_object(const Fields& fields) {
  Json::object_t object;
  for (const auto& [name, value] : fields) object.emplace_back(name, value);
  return object;
}

}  // namespace

int64_t ModelConfig::max_length() const {
  const int64_t positions = architecture_of(*this).positions_follow_padding()
                                ? max_position_embeddings - pad_token_id - 1
                                : max_position_embeddings;
  return std::min(positions, kLongestSequence);
}

bool has_block_sparse_attention(const ModelConfig& config) {
  return architecture_of(config).has_block_sparse_attention();
}

std::vector<std::pair<std::string, std::string>> tied_names(const ModelConfig& config) {
  return architecture_of(config).tied_names(config);
}

// Those of images, and of heads that predict further tokens.
bool is_of_other_part(const std::string& name) {
  for (const std::string_view begin :
       {"model.visual.", "visual.", "model.vision_tower.", "vision_tower.",
        "model.multi_modal_projector.", "multi_modal_projector.", "model.audio_tower.",
        "audio_tower.", "model.embed_vision.", "embed_vision.", "model.embed_audio.",
        "embed_audio.", "mtp."}) {
    if (name.starts_with(begin)) return true;
  }
  return false;
}

bool has_other_parts(const nlohmann::ordered_json& json) {
  const auto type = json.find("model_type");
  return type != json.end() && type->is_string() &&
         language_model_in(type->get<std::string>()) != nullptr;
}

StoredNames stored_names(const ModelConfig& config) {
  return architecture_of(config).stored_names();
}

bool has_transposed_linear(const ModelConfig& config) {
  return architecture_of(config).has_transposed_linear();
}

const std::vector<std::string>& model_types() {
  static const std::vector<std::string> kTypes = [] {
    std::vector<std::string> types;
    for (const Architecture* architecture : architectures()) {
      types.push_back(architecture->model_type());
    }
    return types;
  }();
  return kTypes;
}

ModelConfig default_model_config(const std::string& model_type) {
  ModelConfig config = bare_defaults(model_type);
  architecture_of(config).complete(config, [](const std::string& why) { FT_CHECK(false, why); });
  return config;
}

namespace {

// rope_parameters of a file replace those of its class whole.
void forget_scaling_of_class(const Json& json, ModelConfig& config) {
  const auto has = [&](const char* name) {
    return json.contains(name) && !json.at(name).is_null();
  };
  if (!has("rope_parameters") && !has("rope_scaling")) return;
  for (auto& [layers, rope] : config.decoder.rope_parameters) {
    if (rope.rope_type != "default") rope = {};
  }
}

// A file without any keeps them whole: not even a rope_theta at the top is read.
void keep_scaling_of_class(const RopeByLayerType& of_class, ModelConfig& config) {
  for (auto& [layers, rope] : config.decoder.rope_parameters) {
    const auto found = of_class.find(layers);
    if (found != of_class.end() && found->second.rope_type != "default") rope = found->second;
  }
}

// A size of heads that the family's class does not declare, and some read all the same.
void check_head_dim(const ModelConfig& config, const Json& json, const std::string& where) {
  const auto found = json.find("head_dim");
  const std::optional<int64_t>& own = config.decoder.head_dim;
  if (found == json.end() || !found->is_number_integer() || !own || *found == *own) return;
  throw Error(ErrorKind::kData,
              where + ": head_dim is " + found->dump() + ", and a " + config.model_type +
                  " has heads of hidden_size / num_attention_heads = " + std::to_string(*own) +
                  "; another size is not available");
}

// Returns the configuration of the language model, as transformers' AutoModelForCausalLM takes it.
Json text_config_of(const Json& json, const LanguageModel& language_model,
                    const std::string& where) {
  const auto text = json.find("text_config");
  if (text == json.end() || !text->is_object()) {
    throw Error(ErrorKind::kData, where + ": model_type '" + std::string(language_model.whole) +
                                      "' is one of images and text, but there is no text_config "
                                      "with its language model");
  }
  Json own = *text;
  if (!own.contains("model_type")) own["model_type"] = std::string(language_model.model_type);
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings",
                           "quantization_config"}) {
    if (!own.contains(name) && json.contains(name)) own[name] = json.at(name);
  }
  return own;
}

}  // namespace

namespace {

constexpr const char* kJevType = "jev";
constexpr const char* kLayaType = "laya";
constexpr std::array<const char*, 3> kQuestionTypes = {"noul", "choice", "score"};

ModelConfig parse_jev_config(const Json& json, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::kData, where + ": " + what);
  };
  const auto text = json.find("text_config");
  if (text == json.end() || !text->is_object()) refuse("a jev has no text_config");
  ModelConfig config = parse_model_config(*text, where + ": text_config");
  JevConfig& jev = config.jev;
  jev.num_verbalizers = 24;
  std::optional<int64_t> hidden_size;
  std::optional<double> softcap;
  read_config_fields({{"num_verbalizers", &jev.num_verbalizers, 1, 1 << 16},
                      optional_field("hidden_size", &hidden_size, 1, 1 << 20),
                      optional_field("softcap", &softcap, 0.0, 1e6)},
                     json, where, ErrorKind::kData);
  jev.softcap = softcap.value_or(0.0);
  if (hidden_size.value_or(config.hidden_size) != config.hidden_size) {
    refuse(format_text("hidden_size {} differs from text_config's {}", *hidden_size,
                       config.hidden_size));
  }
  const auto offsets = json.find("offsets");
  if (offsets == json.end() || offsets->is_null()) return config;
  for (size_t type = 0; type < kQuestionTypes.size(); ++type) {
    const auto found = offsets->is_object() ? offsets->find(kQuestionTypes[type]) : offsets->end();
    if (found == offsets->end() || !found->is_number_integer() || *found < 0 ||
        *found >= jev.num_verbalizers) {
      refuse(std::string("offsets has no row of the head for ") + kQuestionTypes[type]);
    }
    jev.offsets[type] = found->get<int64_t>();
  }
  return config;
}

// The fields of config.json next to text_config.
ConfigFields own_laya_fields(LayaConfig& laya) {
  return with_fields({{"actions", &laya.actions, 1, 1 << 16}}, laya_fields(laya));
}

ModelConfig parse_laya(const Json& json, const std::string& where) {
  const auto text = json.find("text_config");
  if (text == json.end() || !text->is_object()) {
    throw Error(ErrorKind::kData, where + ": a laya has no text_config");
  }
  ModelConfig config = parse_model_config(*text, where + ": text_config");
  read_config_fields(own_laya_fields(config.laya.emplace()), json, where, ErrorKind::kData);
  return config;
}

// The model's own config.json, as that of one with a head for decisions has it.
Json text_config_json(ModelConfig config, const std::string& architecture,
                      const std::string& dtype) {
  config.jev = {};
  config.laya.reset();
  Json text = Json::parse(model_config_json(config, "", dtype));
  if (!architecture.empty()) text["dtype"] = dtype;
  return text;
}

Json laya_config_json(const ModelConfig& config, const std::string& architecture,
                      const std::string& dtype) {
  Json json = Json::object();
  if (!architecture.empty()) json = {{"architectures", {architecture}}, {"dtype", dtype}};
  json["model_type"] = kLayaType;
  LayaConfig laya = *config.laya;
  for (const ConfigField& field : own_laya_fields(laya)) json[field.name] = written_field(field);
  json["text_config"] = text_config_json(config, architecture, dtype);
  return json;
}

// config.json of a model with the head, around the model's own.
Json jev_config_json(const ModelConfig& config, const std::string& architecture,
                     const std::string& dtype) {
  Json offsets = Json::object();
  for (size_t type = 0; type < kQuestionTypes.size(); ++type) {
    offsets[kQuestionTypes[type]] = config.jev.offsets[type];
  }
  Json json = Json::object();
  if (!architecture.empty()) json = {{"architectures", {architecture}}, {"dtype", dtype}};
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.initializer_range;
  json["model_type"] = kJevType;
  json["num_verbalizers"] = config.jev.num_verbalizers;
  json["offsets"] = std::move(offsets);
  json["softcap"] = config.jev.softcap == 0.0 ? Json() : Json(config.jev.softcap);
  json["text_config"] = text_config_json(config, architecture, dtype);
  return json;
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must hold a JSON object");
  std::string model_type;
  read_config_fields({{.name = "model_type", .target = &model_type}}, json, where,
                     ErrorKind::kData);
  if (model_type.empty()) {
    throw Error(ErrorKind::kData, where + ": has no 'model_type'; is this a Hugging Face model?");
  }
  if (model_type == kJevType) return parse_jev_config(json, where);
  if (model_type == kLayaType) return parse_laya(json, where);
  if (const LanguageModel* language_model = language_model_in(model_type)) {
    ModelConfig config =
        parse_model_config(text_config_of(json, *language_model, where), where + ": text_config");
    config.name_in_whole = language_model->name_in_whole;
    return config;
  }
  ModelConfig config = defaults_of(model_type, where, ErrorKind::kData);
  refuse_unsupported(architecture_of(config), json, where);
  forget_scaling_of_class(json, config);
  const RopeByLayerType of_class = config.decoder.rope_parameters;
  read_fields(config, json, where, ErrorKind::kData);
  keep_scaling_of_class(of_class, config);
  check_whole(config, where, ErrorKind::kData);
  check_head_dim(config, json, where);
  read_quantization(json, where, config);
  config.other_fields = unknown_fields(json, config).dump();
  return config;
}

namespace {

// Of a whole whose two configurations may disagree about a shared output layer, and which leaves
// out what is a default of its class: it is shared if the files have none.
void read_sharing(const std::string& folder, ModelConfig& config) {
  FileSystem& files = FileSystem::local();
  if (!files.exists(join_path(folder, kModelFile)) &&
      !files.exists(join_path(folder, kModelIndexFile))) {
    return;
  }
  const ModelTensors tensors =
      load_model_tensors(files, folder, /*maps=*/false, stored_names(config));
  config.tie_word_embeddings = !tensors.has("lm_head.weight");
}

// The modules of sentence-transformers in a folder, if it has some.
void read_modules(const std::string& folder, ModelConfig& config) {
  auto embedding = read_embedding_config(folder);
  if (!embedding) return;
  config.embedding = std::move(*embedding);
  const auto& dense = config.embedding.dense;
  if (dense.empty() || dense.front().in_features == config.hidden_size) return;
  throw Error(
      ErrorKind::kData,
      format_text("'{}': {} asks for vectors of {} dimensions, and the model has {}; "
                  "restore the files of the model",
                  folder, dense.front().module, dense.front().in_features, config.hidden_size));
}

}  // namespace

namespace {

// As laya reads it, whatever config.json says.
ModelConfig read_laya_config(const std::string& folder) {
  const auto read = [&](const char* name) {
    const std::string path = join_path(folder, name);
    if (!FileSystem::local().exists(path)) {
      throw Error(ErrorKind::kData, "'" + path + "' is missing, which a folder with " + kLayaFile +
                                        " has; fetch the folder again");
    }
    return std::pair(read_json_file(path, ErrorKind::kData, {.max_bytes = 16 << 20}), path);
  };
  const auto [encoder, encoder_path] = read(kLayaEncoderFile);
  const auto [settings, settings_path] = read(kLayaFile);
  ModelConfig config = parse_model_config(encoder, encoder_path);
  config.laya = parse_laya_config(settings, settings_path);
  return config;
}

}  // namespace

ModelConfig read_model_config(const std::string& folder) {
  if (const std::optional<nn::LoraConfig> lora = read_adapter_config(folder)) {
    ModelConfig config = read_model_config(adapter_base(folder, *lora));
    config.lora = lora;
    read_modules(folder, config);
    read_recorded_labels(folder, config);
    return config;
  }
  if (FileSystem::local().exists(join_path(folder, kLayaFile))) return read_laya_config(folder);
  const std::string path = join_path(folder, kConfigFile);
  if (FileSystem::local().type(path) == FileType::kMissing) {
    throw Error(ErrorKind::kConfig, "model_name_or_path: there is no '" + path +
                                        "'; name a folder with config.json and model.safetensors");
  }
  ModelConfig config =
      parse_model_config(read_json_file(path, ErrorKind::kData, {.max_bytes = 16 << 20}), path);
  read_modules(folder, config);
  if (!config.name_in_whole.empty()) read_sharing(folder, config);
  return config;
}

namespace {

// Resets values that were derived from other fields, so that they are derived again after the
// override.
void forget_derived(ModelConfig& config) {
  const Architecture& architecture = architecture_of(config);
  const ModelConfig base = config;
  const ModelConfig bare = bare_defaults(config.model_type);
  const auto forget = [&](auto ModelConfig::*part, auto member) {
    ModelConfig derived = base;
    (derived.*part).*member = {};
    if ((bare.*part).*member != (derived.*part).*member) return;  // the class sets a default
    architecture.complete(derived, [](const std::string& why) { FT_CHECK(false, why); });
    if ((derived.*part).*member == (base.*part).*member) (config.*part).*member = {};
  };
  forget(&ModelConfig::decoder, &DecoderConfig::num_key_value_heads);
  forget(&ModelConfig::decoder, &DecoderConfig::head_dim);
  forget(&ModelConfig::decoder, &DecoderConfig::per_layer_config);  // which has layers by type
  forget(&ModelConfig::decoder, &DecoderConfig::layer_types);
  forget(&ModelConfig::decoder, &DecoderConfig::no_rope_layers);
  forget(&ModelConfig::decoder, &DecoderConfig::activation_sparsity_pattern);
  std::vector<int64_t>& sizes = config.decoder.intermediate_sizes;
  if (std::ranges::adjacent_find(sizes, std::not_equal_to()) == sizes.end()) {
    sizes.resize(std::min<size_t>(sizes.size(), 1));  // of every layer
  }
  forget(&ModelConfig::decoder, &DecoderConfig::sliding_window);
  // Those of every layer are what follows from no list.
  if (std::ssize(config.decoder.full_attn_idxs) == config.num_hidden_layers) {
    config.decoder.full_attn_idxs.clear();
  }
  forget(&ModelConfig::encoder, &EncoderConfig::pooler_hidden_size);
}

}  // namespace

ModelConfig override_model_config(const ModelConfig& base, const Json& overrides) {
  const std::string where = "config_overrides";
  std::string model_type = base.model_type;
  read_config_fields({{.name = "model_type", .target = &model_type}}, overrides, where,
                     ErrorKind::kConfig);
  ModelConfig config =
      model_type == base.model_type ? base : defaults_of(model_type, where, ErrorKind::kConfig);
  if (model_type == base.model_type) forget_derived(config);
  const std::vector<std::string> names = field_names(config);
  for (const auto& item : overrides.items()) {
    if (!contains(names, item.key())) {
      throw Error(ErrorKind::kConfig, where + ": '" + item.key() + "' is no field of the model" +
                                          did_you_mean(item.key(), names));
    }
  }
  read_fields(config, overrides, where, ErrorKind::kConfig);
  check_whole(config, where, ErrorKind::kConfig);
  return config;
}

std::string model_config_json(const ModelConfig& config, const std::string& architecture,
                              const std::string& dtype) {
  if (config.jev.num_verbalizers > 0) {
    return jev_config_json(config, architecture, dtype).dump(2, ' ', true) + "\n";
  }
  if (config.laya) {
    return laya_config_json(config, architecture, dtype).dump(2, ' ', true) + "\n";
  }
  // In transformers' order: names alphabetically, but the numbers of labels by value.
  std::map<std::string, Json> fields;
  const Architecture& family = architecture_of(config);
  if (!family.is_causal() && family.has_decoder_fields())
    fields = {{"add_cross_attention", false}, {"is_decoder", false}};
  if (!architecture.empty()) {
    fields["architectures"] = Json::array({architecture});
    fields["dtype"] = dtype;
    if (family.has_decoder_fields()) fields["use_cache"] = true;
    const Json others = parse_json(config.other_fields, "other_fields");
    for (const auto& [name, value] : others.items()) fields[name] = value;
  }
  fields["model_type"] = config.model_type;
  ModelConfig own = config;
  for (const ConfigField& field : architecture_of(own).fields(own)) {
    if (field.is_old_name) continue;
    const Json value = written_field(field);
    if (!value.is_null() || !field.absent_as_null) fields[field.name] = value;
  }
  if (config.problem_type) fields["problem_type"] = *config.problem_type;
  if (config.id2label != numbered_labels(2)) {
    std::vector<std::pair<std::string, std::string>> names;
    std::map<std::string, int64_t> numbers;
    for (const std::string& label : config.id2label) {
      numbers[label] = static_cast<int64_t>(names.size());
      names.emplace_back(std::to_string(names.size()), label);
    }
    fields["id2label"] = to_object(names);
    fields["label2id"] = to_object(numbers);
  }
  return to_object(fields).dump(2, ' ', true) + "\n";
}

std::string encoder_config_json(const ModelConfig& config) {
  ModelConfig own = config;
  own.laya.reset();
  return model_config_json(own, architecture_of(own).class_prefix() + "Model");
}

}  // namespace finetune
