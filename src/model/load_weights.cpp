// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <map>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/model/model.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/tensor/finite.h"
#include "model/architecture.h"
#include "model/laya.h"

namespace finetune {
namespace {

// Finds the tensor of a folder for each parameter.
class NameMap {
 public:
  NameMap(const ModelConfig& config, const Weights& weights, const std::vector<std::string>& names)
      : available_(names.begin(), names.end()) {
    const Architecture& architecture = architecture_of(config);
    backbone_ = architecture.backbone_name() + ".";
    if (config.laya) encoder_ = std::string(kLayaEncoder) + ".";
    for (const Weight& weight : weights) parameters_.insert(weight.name());
    for (const std::string& name : names) {
      const std::string own = own_name(name);
      // A tensor with exactly this name has priority over one that is renamed to it.
      if (parameters_.contains(own) && (own == name || !available_.contains(own))) {
        sources_[own] = name;
      }
    }
    if (!has_lm_head(architecture)) return;
    for (const auto& [first, second] : architecture.tied_names(config)) tie(first, second);
  }

  // Returns the tensor of a parameter; "" if there is none.
  [[nodiscard]] std::string source_of(const std::string& parameter) const {
    const auto found = sources_.find(parameter);
    return found == sources_.end() ? "" : found->second;
  }

  // Returns pairs that are both in the folder although the model has one tensor for them.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& twins() const {
    return twins_;
  }

  [[nodiscard]] std::vector<std::string> unexpected() const {
    std::set<std::string> used = ignored_;
    for (const auto& [parameter, source] : sources_) used.insert(source);
    std::vector<std::string> list;
    for (const std::string& name : available_) {
      const bool is_buffer = name.ends_with("position_ids") || name.ends_with("token_type_ids") ||
                             name.ends_with("rotary_emb.inv_freq") ||
                             name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
      if (!used.contains(name) && !is_buffer) list.push_back(name);
    }
    return list;
  }

 private:
  [[nodiscard]] bool has_lm_head(const Architecture& architecture) const {
    return architecture.is_causal() || parameters_.contains(architecture.lm_head_name() + ".bias");
  }

  [[nodiscard]] std::string own_name(std::string name) const {
    const auto replace_end = [&](std::string_view old_end, std::string_view new_end) {
      if (name.ends_with(old_end)) name.replace(name.size() - old_end.size(), name.npos, new_end);
    };
    replace_end("LayerNorm.gamma", "LayerNorm.weight");
    replace_end("LayerNorm.beta", "LayerNorm.bias");
    // transformers' files of a JevForDecision; it reads either name.
    if (name == "weight" && parameters_.contains("proj.weight")) return "proj.weight";
    if (!parameters_.contains(name) && !encoder_.empty()) {
      const size_t begin = name.starts_with(backbone_) ? backbone_.size() : 0;
      std::string in_encoder = encoder_ + name.substr(begin);
      return parameters_.contains(in_encoder) ? in_encoder : name;
    }
    if (!parameters_.contains(name) && parameters_.contains(backbone_ + name)) {
      return backbone_ + name;
    }
    // Of a bare model's own parameters, in the folder of a model with a head.
    if (!parameters_.contains(name) && name.starts_with(backbone_)) {
      const std::string bare = name.substr(backbone_.size());
      if (parameters_.contains(bare)) return bare;
    }
    return name;
  }

  // Handles two names of one tensor: either is enough. If the model has a parameter for both, each
  // uses its own tensor, or the other's if that is the only one: transformers 4 wrote a tied bias
  // once.
  void tie(const std::string& first, const std::string& second) {
    const bool has_first = sources_.contains(first);
    const bool has_second = available_.contains(second);
    if (parameters_.contains(second)) {
      if (has_first && !has_second) sources_[second] = sources_[first];
      if (!has_first && has_second) sources_[first] = second;
      return;
    }
    if (!has_second) return;
    ignored_.insert(second);
    if (has_first) {
      twins_.emplace_back(sources_[first], second);
    } else {
      sources_[first] = second;
    }
  }

  std::set<std::string> available_;
  std::set<std::string> parameters_;
  std::string backbone_;                        // "bert."
  std::string encoder_;                         // instead, of a laya model
  std::map<std::string, std::string> sources_;  // parameter -> tensor
  std::set<std::string> ignored_;
  std::vector<std::pair<std::string, std::string>> twins_;
};

class Faults {
 public:
  void add(const std::string& fault) { faults_.push_back(fault); }
  void conclude(const std::string& conclusion) { conclusion_ = "; " + conclusion; }
  // Throws with the first few faults: a wrong config.json makes every tensor a fault.
  void throw_if_any(const std::string& where) const {
    if (faults_.empty()) return;
    throw Error(ErrorKind::kData, where + ": " + listed(faults_, 4, "; ") + conclusion_);
  }

 private:
  std::vector<std::string> faults_;
  std::string conclusion_;
};

void check_shapes(const LoadReport& report, const LoadOptions& options, Faults& faults) {
  if (options.ignore_mismatched_sizes || report.mismatched.empty()) return;
  for (const LoadReport::Mismatch& m : report.mismatched) {
    const bool is_of_costs = m.name.starts_with("act_head.");  // of a laya model
    faults.add("tensor '" + m.name + "' has the shape " + shape_text(m.folder_shape) + ", but " +
               (is_of_costs ? "act_costs in rl_agent_config.json" : "config.json") + " asks for " +
               shape_text(m.model_shape));
  }
  faults.conclude("weights and configuration do not belong together");
}

std::string hash_values(const Tensor& values) {
  Hasher hasher;
  const Tensor contiguous = values.contiguous();
  hasher.update(contiguous.const_data_ptr(), contiguous.nbytes());
  return hasher.hex() + c10::toString(values.scalar_type()) + shape_text(values.sizes());
}

// Loads one tensor at a time, unless the hashes differ.
bool are_equal(const TensorSource& source, const std::string& first, const std::string& second) {
  const std::string hash = hash_values(source(first));
  return hash_values(source(second)) == hash || source(first).equal(source(second));
}

void check_twins(const NameMap& map, const TensorSource& source, Faults& faults) {
  for (const auto& [first, second] : map.twins()) {
    if (are_equal(source, first, second)) continue;
    faults.add("tensors '" + first + "' and '" + second +
               "' differ, but config.json ties them: write \"tie_word_embeddings\": false there");
  }
}

}  // namespace

void check_head_layers(const ModelConfig& config, const std::vector<std::string>& names,
                       const std::string& where) {
  if (!config.laya) return;
  const std::string next = format_text("head.layers.{}.", config.laya->head_layers);
  const auto found =
      std::ranges::find_if(names, [&](const auto& name) { return name.starts_with(next); });
  if (found == names.end()) return;
  throw Error(ErrorKind::kData,
              format_text("{}: holds the tensor '{}', and {} says head_layers {}; they do not "
                          "belong together: write the number of layers that the weights have",
                          where, *found, kLayaFile, config.laya->head_layers));
}

std::vector<std::string> weight_sources(const ModelConfig& config, const Weights& weights,
                                        const std::vector<std::string>& names) {
  const NameMap map(config, weights, names);
  std::vector<std::string> sources;
  for (const Weight& weight : weights) sources.push_back(map.source_of(weight.name()));
  return sources;
}

std::vector<std::string> missing_weights(const ModelConfig& config, const Weights& weights,
                                         const std::vector<std::string>& names) {
  const std::vector<std::string> sources = weight_sources(config, weights, names);
  std::vector<std::string> missing;
  for (size_t i = 0; i < sources.size(); ++i) {
    const bool is_needed = weights[i].role() != ParameterRole::kConstant;
    if (sources[i].empty() && is_needed && !fixed_values(config, weights[i])) {
      missing.push_back(weights[i].name());
    }
  }
  return missing;
}

namespace {

// Equal but for the rounding to 16 bits.
bool is_like(const Tensor& value, const Tensor& fixed) {
  constexpr double kRounding = 0.01;
  const Tensor most = fixed.abs().max() * kRounding;
  return ((value.to(at::kFloat).cpu() - fixed).abs() <= most).all().item<bool>();
}

}  // namespace

std::optional<Tensor> fixed_values(const ModelConfig& config, const Weight& weight) {
  return architecture_of(config).fixed_values(config, weight);
}

LoadReport load_weights(Model& model, const std::vector<std::string>& names,
                        const TensorSource& source, const std::string& where,
                        const LoadOptions& options) {
  const c10::NoGradGuard no_grad;
  check_head_layers(model.config(), names, where);
  const NameMap map(model.config(), model.weights(), names);
  LoadReport report;
  report.unexpected = map.unexpected();
  if (architecture_of(model.config()).is_causal()) {
    std::erase_if(report.unexpected, is_of_other_part);
  }
  std::erase_if(report.unexpected, [&](const std::string& name) {
    return architecture_of(model.config()).ignores(model.config(), name);
  });
  const auto set = [&](Parameter& parameter, const auto& values) {
    const bool is_shared = options.shares_files && !parameter.format.trainable;
    is_shared ? model.store().share(parameter, values) : model.store().assign(parameter, values);
  };
  Faults faults;
  for (const std::string& name : report.unexpected) {
    const auto has_it = [&](const DenseConfig& dense) {
      return module_folder(name) == dense.module;
    };
    if (std::ranges::any_of(model.config().embedding.dense, has_it)) {
      faults.add("tensor '" + name + "' has no place: the module's config.json asks for none");
    }
  }
  for (Parameter& parameter : model.store().parameters()) {
    const std::string name = map.source_of(parameter.name());
    const std::optional<Tensor> fixed = fixed_values(model.config(), parameter.handle);
    if (name.empty() && fixed) {
      model.store().assign(parameter, *fixed);
      continue;
    }
    if (name.empty() && parameter.role() == ParameterRole::kConstant) {  // as in transformers
      model.store().assign(parameter, at::ones(parameter.handle.sizes()));
      continue;
    }
    if (name.empty()) {
      report.missing.push_back(parameter.name());
      continue;
    }
    interrupt::throw_if_requested("loading " + where);
    if (const auto quantized = options.quantized ? options.quantized(name) : std::nullopt) {
      const bool is_stack = quantized->format == WeightFormat::kMxfp4;
      if (parameter.role() != (is_stack ? ParameterRole::kStackedLinear : ParameterRole::kLinear)) {
        faults.add("tensor '" + name +
                   "' is quantized, and only the matrices of linear layers can be");
      } else if (at::IntArrayRef(quantized->sizes) != parameter.handle.sizes()) {
        faults.add("tensor '" + name + "' is quantized and has the shape " +
                   shape_text(quantized->sizes) + ", but config.json asks for " +
                   shape_text(parameter.handle.sizes()));
      } else {
        set(parameter, *quantized);
      }
      continue;
    }
    const Tensor value = source(name);
    if (!value.is_floating_point()) {
      faults.add("tensor '" + name + "' holds no floating-point numbers" +
                 (options.quantized ? ", and nothing says how it is quantized to nf4" : ""));
    } else if (value.sizes() != parameter.handle.sizes()) {
      report.mismatched.push_back(
          {parameter.name(), value.sizes().vec(), parameter.handle.sizes().vec()});
    } else if (!is_finite(value)) {
      faults.add("tensor '" + name + "' contains NaN or Inf; this model is broken");
    } else if (fixed && !is_like(value, *fixed)) {
      faults.add("tensor '" + name +
                 "' has other values than those of its formula, which alone is " +
                 "computed; leave it out if they are of no use");
    } else {
      const bool is_rounded =
          options.quantized_from && traits_of(parameter.format.weight).unpack != nullptr;
      const Tensor rounded = is_rounded ? value.to(*options.quantized_from) : value;
      if (is_rounded && !is_finite(rounded)) {
        faults.add("tensor '" + name + "' has values that " +
                   c10::toString(*options.quantized_from) + " cannot hold; leave dtype out");
      } else {
        set(parameter, rounded);
      }
    }
  }
  check_shapes(report, options, faults);
  check_twins(map, source, faults);
  faults.throw_if_any(where);
  return report;
}

}  // namespace finetune
