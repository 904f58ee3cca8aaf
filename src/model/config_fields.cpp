// SPDX-License-Identifier: MIT
#include "model/config_fields.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"

namespace finetune {
namespace {

using FieldJson = nlohmann::ordered_json;

constexpr size_t kMostItems = 1 << 16;
// What transformers 4 calls rope_theta of layers that see everything, and of those with a window.
constexpr std::array kThetas = {"rope_theta", "global_rope_theta"};
constexpr std::array kLocalThetas = {"rope_local_base_freq", "local_rope_theta"};

// The fields of rope_parameters.
ConfigFields rope_fields(RopeParameters& rope) {
  ConfigFields fields = {
      {"rope_type", &rope.rope_type},
      {"rope_theta", &rope.rope_theta, 1e-3, 1e15},
      {"partial_rotary_factor", &rope.partial_rotary_factor, 0.0, 1.0},
      {"factor", &rope.factor, 1e-6, 1e6},
      {"attention_factor", &rope.attention_factor, 0.0, 1e6},
      {"low_freq_factor", &rope.low_freq_factor, 1e-6, 1e6},
      {"high_freq_factor", &rope.high_freq_factor, 1e-6, 1e6},
      {"beta_fast", &rope.beta_fast, 0.0, 1e6},
      {"beta_slow", &rope.beta_slow, 0.0, 1e6},
      {"mscale", &rope.mscale, 0.0, 1e6},
      {"mscale_all_dim", &rope.mscale_all_dim, 0.0, 1e6},
      {"truncate", &rope.truncate},
      {"mrope_interleaved", &rope.mrope_interleaved},
      {"mrope_section", &rope.mrope_section, 0, 65536},
      {"alpha", &rope.alpha, 0.0, 1e15},
      {"llama_4_scaling_beta", &rope.llama_4_scaling_beta, 0.0, 1e6},
      {"max_position_embeddings", &rope.max_position_embeddings, 1, kMostPositions},
      {"short_factor", &rope.short_factor, 1e-6, 1e6},
      {"long_factor", &rope.long_factor, 1e-6, 1e6},
      {"original_max_position_embeddings", &rope.original_max_position_embeddings, 1,
       kMostPositions}};
  for (ConfigField& field : fields) field.absent_as_null = true;
  return fields;
}

ConfigFields layer_fields(LayerConfig& layer) {
  return {optional_field("head_dim", &layer.head_dim, 1, 4096),
          optional_field("num_key_value_heads", &layer.num_key_value_heads, 1, 1024)};
}

class FieldReader {
 public:
  FieldReader(const FieldJson& json, std::string where, ErrorKind kind)
      : json_(json), where_(std::move(where)), kind_(kind) {}

  void operator()(const ConfigField& field) const {
    std::visit([&](auto* target) { read(field, *target); }, field.target);
  }

 private:
  // Returns null if the field is absent or null.
  [[nodiscard]] const FieldJson* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  void read(const ConfigField& field, int64_t& value) const {
    const FieldJson* found = find(field.name);
    if (found == nullptr) return;
    if (!found->is_number_integer()) refuse(field, *found, "a whole number");
    const auto wide = found->get<double>();  // an unsigned value above 2^63 stays positive
    if (wide < field.low || wide > field.high) {
      refuse(field, *found,
             "between " + std::to_string(static_cast<int64_t>(field.low)) + " and " +
                 std::to_string(static_cast<int64_t>(field.high)));
    }
    value = found->get<int64_t>();
  }

  void read(const ConfigField& field, double& value) const {
    const FieldJson* found = find(field.name);
    if (found == nullptr) return;
    if (!found->is_number()) refuse(field, *found, "a number");
    const auto number = found->get<double>();
    if (!(number >= field.low && number <= field.high)) {
      refuse(field, *found,
             "between " + format_double(field.low) + " and " + format_double(field.high));
    }
    value = number;
  }

  void read(const ConfigField& field, bool& value) const {
    const FieldJson* found = find(field.name);
    if (found == nullptr) return;
    if (!found->is_boolean()) refuse(field, *found, "true or false");
    value = found->get<bool>();
  }

  void read(const ConfigField& field, std::string& value) const {
    const FieldJson* found = find(field.name);
    if (found == nullptr) return;
    if (!found->is_string()) refuse(field, *found, "a text");
    value = found->get<std::string>();
  }

  void read(const ConfigField& field, NumberOrText& value) const {
    const FieldJson* found = find(field.name);
    if (found == nullptr) return;
    if (found->is_string()) {
      value = found->get<std::string>();
    } else {
      read(field, value.emplace<int64_t>());
    }
  }

  // Reads an optional value: an explicit null removes the default.
  template <class Value>
  void read(const ConfigField& field, std::optional<Value>& value) const {
    if (!json_.contains(field.name)) return;
    value.reset();
    if (find(field.name) != nullptr) read(field, value.emplace());
  }

  // Reads a list; a single value is a list with that value, and null an empty list.
  template <class Value>
  void read(const ConfigField& field, std::vector<Value>& values) const {
    if (!json_.contains(field.name)) return;
    values.clear();
    const FieldJson* found = find(field.name);
    if (found == nullptr) return;
    const FieldJson list = found->is_array() ? *found : FieldJson::array({*found});
    if (list.size() > kMostItems) refuse(field, *found, "a shorter list");
    for (const FieldJson& item : list) {
      if (item.is_null()) refuse(field, *found, "a list without null");
      const FieldJson alone = {{field.name, item}};
      Value value{};
      FieldReader(alone, where_, kind_).read(field, value);
      values.push_back(value);
    }
  }

  // Numbers of layers, and what differs there. An explicit null: nothing does.
  void read(const ConfigField& field, std::optional<PerLayerConfig>& value) const {
    if (!json_.contains(field.name)) return;
    PerLayerConfig& layers = value.emplace();
    if (find(field.name) == nullptr) return;
    const FieldJson& all = *find(field.name);
    if (!all.is_object()) refuse(field, all, "a mapping of layers");
    for (const auto& [layer, own] : all.items()) {
      const std::string name = std::string(field.name) + "." + layer;
      if (layer.empty() || layer.size() > 4 ||
          layer.find_first_not_of("0123456789") != std::string::npos || !own.is_object()) {
        refuse({name.c_str(), field.target}, own, "a mapping of a layer's number");
      }
      LayerConfig& config = layers[std::stoll(layer)];
      const ConfigFields fields = layer_fields(config);
      for (const auto& item : own.items()) {
        const bool is_known = std::ranges::any_of(
            fields, [&](const ConfigField& one) { return item.key() == one.name; });
        if (is_known) continue;
        refuse({name.c_str(), field.target}, own, "of head_dim and num_key_value_heads alone");
      }
      read_config_fields(fields, own, where_ + ": " + name, kind_);
    }
  }

  // rope_parameters of transformers 5, flat or by type of layer, or rope_theta and rope_scaling of
  // transformers 4. In a file with both, rope_scaling replaces flat rope_parameters and changes
  // members of those by type, as in transformers.
  void read(const ConfigField& field, RopeByLayerType& rope) const {
    const bool by_layers = !rope.contains("");
    const FieldJson* scaling = find("rope_scaling");
    if (scaling != nullptr && scaling->is_object() && scaling->empty()) scaling = nullptr;
    const FieldJson* found = !by_layers && scaling != nullptr ? nullptr : find(field.name);
    if (found != nullptr && !found->is_object()) refuse(field, *found, "a mapping");
    for (auto& [layers, parameters] : rope) {
      const bool sees_all = !by_layers || layers == "full_attention";
      for (const char* theta : sees_all ? kThetas : kLocalThetas) {
        read({theta, &parameters.rope_theta, 1e-3, 1e15}, parameters.rope_theta);
      }
      if (field.reads_share) {
        read({"partial_rotary_factor", &parameters.partial_rotary_factor, 0.0, 1.0},
             parameters.partial_rotary_factor);
      }
      read_rope(field, found, layers, parameters);
      if (sees_all || field.scales_every_layer) {
        read_scaling("rope_scaling", scaling, parameters);
      }
    }
  }

  // Those of `rope` that are of one type of layers, or of all ("").
  void read_rope(const ConfigField& field, const FieldJson* rope, const std::string& layers,
                 RopeParameters& parameters) const {
    if (rope == nullptr) return;
    const auto own = layers.empty() ? rope->end() : rope->find(layers);
    if (own != rope->end()) {
      read_scaling(std::string(field.name) + "." + layers, own->is_null() ? nullptr : &*own,
                   parameters);
    } else if (layers.empty() || layers == "full_attention") {
      read_scaling(field.name, rope, parameters);
    }
  }

  void read_scaling(const std::string& name, const FieldJson* scaling,
                    RopeParameters& parameters) const {
    if (scaling == nullptr) return;
    if (!scaling->is_object()) refuse({name.c_str(), &parameters.rope_type}, *scaling, "a mapping");
    const FieldReader reader(*scaling, where_ + ": " + name, kind_);
    reader.read({"type", &parameters.rope_type}, parameters.rope_type);
    for (const ConfigField& field : rope_fields(parameters)) reader(field);
    // Phi-3's files used this name for longrope before transformers added it.
    if (parameters.rope_type == "su") parameters.rope_type = "longrope";
  }

  [[noreturn]] void refuse(const ConfigField& field, const FieldJson& value,
                           const std::string& expected) const {
    throw Error(kind_, where_ + ": '" + field.name + "' is " + value.dump().substr(0, 80) +
                           ", but must be " + expected);
  }

  const FieldJson& json_;
  std::string where_;
  ErrorKind kind_;
};

FieldJson written(const RopeParameters& rope) {
  RopeParameters own = rope;
  std::map<std::string, FieldJson> sorted;
  for (const ConfigField& field : rope_fields(own)) {
    FieldJson value = written_field(field);
    if (!value.is_null()) sorted[field.name] = std::move(value);
  }
  FieldJson json = FieldJson::object();
  for (auto& [name, value] : sorted) json[name] = std::move(value);
  return json;
}

template <class Value>
FieldJson written(const Value& value) {
  return value;
}
FieldJson written(const NumberOrText& value) {
  return std::visit([](const auto& own) { return FieldJson(own); }, value);
}
FieldJson written(const PerLayerConfig& layers) {
  FieldJson json = FieldJson::object();
  for (const auto& [layer, config] : layers) {
    LayerConfig own = config;
    std::string number = std::to_string(layer);  // of as many digits as the last, as transformers
    number.insert(0, std::to_string(layers.rbegin()->first).size() - number.size(), '0');
    FieldJson& one = json[number] = FieldJson::object();
    for (const ConfigField& field : layer_fields(own)) {
      FieldJson value = written_field(field);
      if (!value.is_null()) one[field.name] = std::move(value);
    }
  }
  return json;
}
template <class Value>
FieldJson written(const std::optional<Value>& value) {
  return value ? written(*value) : FieldJson(nullptr);
}
template <class Value>
FieldJson written(const std::vector<Value>& values) {
  return values.empty() ? FieldJson(nullptr) : FieldJson(values);
}
FieldJson written(const RopeByLayerType& rope) {
  if (rope.contains("")) return written(rope.at(""));
  FieldJson json = FieldJson::object();
  for (const auto& [layers, parameters] : rope) json[layers] = written(parameters);
  return json;
}

}  // namespace

ConfigFields with_fields(ConfigFields fields, const ConfigFields& own) {
  fields.insert(fields.end(), own.begin(), own.end());
  return fields;
}

ConfigFields without_fields(ConfigFields fields, const std::vector<std::string_view>& names) {
  std::erase_if(fields, [&](const ConfigField& field) {
    return std::find(names.begin(), names.end(), field.name) != names.end();
  });
  return fields;
}

ConfigField optional_field(const char* name, ConfigField::Target target, double low, double high) {
  return {.name = name, .target = target, .low = low, .high = high, .absent_as_null = true};
}

ConfigField old_name(const char* name, ConfigField::Target target, double low, double high) {
  return {.name = name, .target = target, .low = low, .high = high, .is_old_name = true};
}

void read_config_fields(const ConfigFields& fields, const nlohmann::ordered_json& json,
                        const std::string& where, ErrorKind kind) {
  const FieldReader read(json, where, kind);
  for (const ConfigField& field : fields) read(field);
}

nlohmann::ordered_json written_field(const ConfigField& field) {
  FieldJson value = std::visit([](const auto* target) { return written(*target); }, field.target);
  if (field.keeps_empty && value.is_null()) return FieldJson::array();
  // A single end-of-text id is written as a number.
  const bool is_ids = std::string_view(field.name) == "eos_token_id" && value.is_array();
  return is_ids && value.size() == 1 ? value.front() : value;
}

std::vector<std::string> split_items(const std::vector<std::string>& items, char separator) {
  std::vector<std::string> parts;
  for (const std::string& item : items) {
    for (size_t start = 0; start <= item.size();) {
      const size_t end = std::min(item.find(separator, start), item.size());
      parts.push_back(item.substr(start, end - start));
      std::erase(parts.back(), ' ');
      start = end + 1;
    }
  }
  return parts;
}

}  // namespace finetune
