// SPDX-License-Identifier: MIT
#include "finetune/model/model_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "model/activation_names.h"
#include "model/architecture.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxLabels = 1 << 20;

// Every field but the labels once: reading, overriding and writing visit this list.
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
  field("classifier_dropout", c.classifier_dropout, 0.0, 0.99);
  field("layer_norm_eps", c.layer_norm_eps, 0.0, 1.0);
  field("tie_word_embeddings", c.tie_word_embeddings);
  field("hidden_act", c.hidden_act);
  field("problem_type", c.problem_type);
  if (!architecture_of(c).has_block_sparse_fields()) return;
  field("sep_token_id", c.sep_token_id, 0, 4 << 20);
  field("attention_type", c.attention_type);
  field("use_bias", c.use_bias);
  field("rescale_embeddings", c.rescale_embeddings);
  field("block_size", c.block_size, 1, 1 << 16);
  field("num_random_blocks", c.num_random_blocks, 0, 1 << 16);
  field("random_blocks_seed", c.random_blocks_seed, 0, int64_t{1} << 53);
  field("bigbird_compat", c.bigbird_compat);
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

  // A number that may be none: an explicit null takes the default away.
  template <class Value, class... Bounds>
  void operator()(const char* name, std::optional<Value>& value, const Bounds&... bounds) const {
    const auto found = json_.find(name);
    if (found == json_.end()) return;
    value.reset();
    if (!found->is_null()) (*this)(name, value.emplace(), bounds...);
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

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> field_names(ModelConfig config) {
  std::vector<std::string> names = {"model_type", "id2label", "num_labels"};
  describe(config, [&](const char* name, const auto&...) { names.emplace_back(name); });
  return names;
}

std::vector<std::string> numbered_labels(int64_t count) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

// {"0": "no", "1": "yes"}: every number from 0 on must be there, in any order.
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
  const Reader read(json, where, kind);
  describe(config, read);
  const auto labels = json.find("id2label");
  if (labels != json.end() && !labels->is_null()) {
    config.id2label = parse_labels(*labels, where, kind);
  } else if (json.contains("num_labels")) {
    auto count = static_cast<int64_t>(config.id2label.size());
    read("num_labels", count, 1, kMaxLabels);
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
  if (config.hidden_act == "prelu" || config.hidden_act == "xielu") {
    throw Error(kind, where + ": hidden_act '" + config.hidden_act +
                          "' has weights of its own and is not available in this version");
  }
  check("hidden_act", config.hidden_act, activation_names());
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

void check_whole(const ModelConfig& config, const std::string& where, ErrorKind kind) {
  const auto refuse = [&](const std::string& why) { throw Error(kind, where + ": " + why); };
  check_names(config, where, kind);
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
           " leaves no room for a sequence of two tokens");
  }
}

ModelConfig defaults_of(const std::string& model_type, const std::string& where, ErrorKind kind) {
  if (!contains(model_types(), model_type)) {
    std::string list;
    for (const std::string& type : model_types()) list += (list.empty() ? "'" : ", '") + type + "'";
    throw Error(kind, where + ": model_type '" + model_type +
                          "' is not available in this version; models of these types are: " + list);
  }
  return default_model_config(model_type);
}

void refuse_decoders(const Json& json, const std::string& where) {
  for (const char* name : {"is_decoder", "add_cross_attention", "is_encoder_decoder"}) {
    const auto found = json.find(name);
    if (found != json.end() && !found->is_null() && *found != false) {
      throw Error(ErrorKind::kData, where + ": decoders are not supported, only encoders");
    }
  }
  const auto positions = json.find("position_embedding_type");
  if (positions != json.end() && !positions->is_null() && *positions != "absolute") {
    throw Error(ErrorKind::kData, where + ": position_embedding_type " + positions->dump() +
                                      " is not supported, only 'absolute'");
  }
}

// What saving must not lose. The names that are left out are written anew or derived.
Json unknown_fields(const Json& json, const ModelConfig& config) {
  Json others = json;
  for (const std::string& name : field_names(config)) others.erase(name);
  for (const char* name :
       {"label2id", "_num_labels", "architectures", "dtype", "torch_dtype", "transformers_version",
        "_name_or_path", "is_decoder", "add_cross_attention"}) {
    others.erase(name);
  }
  return others;
}

// An object in the order of `fields`: appending to ordered_json by name would search it each time.
template <class Fields>
Json to_object(const Fields& fields) {
  Json::object_t object;
  for (const auto& [name, value] : fields) object.emplace_back(name, value);
  return object;
}

}  // namespace

int64_t ModelConfig::max_length() const {
  return architecture_of(*this).positions_follow_padding()
             ? max_position_embeddings - pad_token_id - 1
             : max_position_embeddings;
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
  ModelConfig config;
  config.model_type = model_type;
  architecture_of(config).set_defaults(config);
  return config;
}

ModelConfig parse_model_config(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must hold a JSON object");
  std::string model_type;
  Reader(json, where, ErrorKind::kData)("model_type", model_type);
  if (model_type.empty()) {
    throw Error(ErrorKind::kData, where + ": has no 'model_type'; is this a Hugging Face model?");
  }
  ModelConfig config = defaults_of(model_type, where, ErrorKind::kData);
  refuse_decoders(json, where);
  read_fields(config, json, where, ErrorKind::kData);
  check_whole(config, where, ErrorKind::kData);
  config.other_fields = unknown_fields(json, config).dump();
  return config;
}

ModelConfig read_model_config(const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  if (FileSystem::local().type(path) == FileType::kMissing) {
    throw Error(ErrorKind::kConfig, "model_name_or_path: there is no '" + path +
                                        "'; name a folder with config.json and model.safetensors");
  }
  return parse_model_config(read_json_file(path, ErrorKind::kData, {.max_bytes = 16 << 20}), path);
}

ModelConfig override_model_config(const ModelConfig& base, const Json& overrides) {
  const std::string where = "config_overrides";
  std::string model_type = base.model_type;
  Reader(overrides, where, ErrorKind::kConfig)("model_type", model_type);
  ModelConfig config =
      model_type == base.model_type ? base : defaults_of(model_type, where, ErrorKind::kConfig);
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
  // Sorted as transformers sorts: names by letters, but the numbers of labels by value.
  std::map<std::string, Json> fields = {{"add_cross_attention", false}, {"is_decoder", false}};
  if (!architecture.empty()) {
    fields["architectures"] = Json::array({architecture});
    fields["dtype"] = dtype;
    fields["use_cache"] = true;
    const Json others = parse_json(config.other_fields, "other_fields");
    for (const auto& [name, value] : others.items()) fields[name] = value;
  }
  fields["model_type"] = config.model_type;
  describe(config, [&](const char* name, const auto& value, const auto&...) {
    if constexpr (requires { value.has_value(); }) {
      fields[name] = value ? Json(*value) : Json(nullptr);
    } else {
      fields[name] = value;
    }
  });
  // Absent rather than null, as these are in what transformers writes.
  for (const char* name : {"problem_type", "random_blocks_seed", "bigbird_compat"}) {
    const auto found = fields.find(name);
    if (found != fields.end() && found->second.is_null()) fields.erase(found);
  }
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

}  // namespace finetune
