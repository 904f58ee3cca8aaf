// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/backbone.h"
#include "model/config_fields.h"
#include "model/heads.h"

namespace finetune {

// How a family of models is built: its names, defaults, equation and heads. A new family is a new
// source with such a class and its line in base/model_families.def; no forward pass asks for the
// family.
class Architecture {
 public:
  virtual ~Architecture() = default;

  // Pairs of names that share one tensor; the second need not be a parameter.
  using TiedNames = std::vector<std::pair<std::string, std::string>>;

  [[nodiscard]] virtual std::string model_type() const = 0;    // "xlm-roberta" in config.json
  [[nodiscard]] virtual std::string class_prefix() const = 0;  // "Roberta" of RobertaForMaskedLM
  // "roberta": first part of parameter names
  [[nodiscard]] virtual std::string backbone_name() const = 0;
  [[nodiscard]] virtual std::string lm_head_name() const = 0;  // module of `bias` and `decoder`
  // Whether the family's language model predicts the next word instead of masked words.
  [[nodiscard]] virtual bool is_causal() const { return false; }
  // The class of the family's language model: "RobertaForMaskedLM".
  [[nodiscard]] virtual std::string lm_class() const {
    return class_prefix() + (is_causal() ? "ForCausalLM" : "ForMaskedLM");
  }

  // Whether the configuration class has the field use_cache and, for encoders, is_decoder and
  // add_cross_attention.
  [[nodiscard]] virtual bool has_decoder_fields() const { return true; }

  // Sets transformers' defaults of the family where they differ from ModelConfig's own.
  virtual void set_defaults(ModelConfig& /*config*/) const {}
  // The fields of the family's config.json except labels; their targets are members of `config`.
  // The default is an encoder's fields.
  [[nodiscard]] virtual ConfigFields fields(ModelConfig& config) const;
  // Fills in values that follow from other fields and refuses combinations that do not fit:
  // `refuse` throws, and its argument names the fields and their values.
  using Refuse = std::function<void(const std::string& why)>;
  virtual void complete(ModelConfig& config, const Refuse& refuse) const;
  [[nodiscard]] virtual bool has_block_sparse_attention() const { return false; }
  [[nodiscard]] virtual bool has_transposed_linear() const { return false; }
  // Whether positions start after the padding id (RoBERTa), which shortens the longest sequence.
  [[nodiscard]] virtual bool positions_follow_padding() const { return false; }

  // `scope` is the encoder's scope. Without a head the model is a language model, here and below.
  [[nodiscard]] virtual std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                                const ModelConfig& config,
                                                                std::optional<Head> head) const = 0;
  // `root` is the scope of the model; a head adds its own name to it.
  [[nodiscard]] virtual std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                             const ModelConfig& config,
                                                             std::optional<Head> head) const = 0;

  // The norm of the last hidden states, where it belongs to heads and not to the backbone.
  [[nodiscard]] virtual std::optional<DecoderNorm> last_norm(const nn::Scope& /*backbone*/,
                                                             const ModelConfig& /*config*/) const {
    return std::nullopt;
  }

  [[nodiscard]] virtual bool has_next_sentence_head() const { return true; }
  // Whether transformers registers the head before the encoder: parameters are numbered in that
  // order.
  [[nodiscard]] virtual bool head_comes_first() const { return false; }
  // The row of an embedding that is initialised to zero: that of the padding.
  [[nodiscard]] virtual std::optional<int64_t> padding_row(const ModelConfig& config,
                                                           const Parameter& parameter) const {
    const bool is_of_positions =
        positions_follow_padding() && parameter.name().ends_with("position_embeddings.weight");
    if (parameter.role() != ParameterRole::kWordEmbedding && !is_of_positions) return std::nullopt;
    return config.pad_token_id;
  }
  // Whether a new parameter that is no weight of a layer is drawn as these are; else it is 0.
  [[nodiscard]] virtual bool is_drawn(const std::string& /*parameter*/) const { return false; }
  // Factor of initializer_range in the standard deviation of a new weight.
  [[nodiscard]] virtual double fresh_share(const ModelConfig& /*config*/,
                                           std::string_view /*parameter*/) const {
    return 1.0;
  }
  // Bound of a new weight, in standard deviations; nullopt: none.
  [[nodiscard]] virtual std::optional<double> fresh_cutoff(const ModelConfig& /*config*/) const {
    return std::nullopt;
  }
  // Initial weight of a norm: zero in Gemma, which adds one to it.
  [[nodiscard]] virtual double fresh_norm() const { return 1.0; }
  // Whether hidden_act may be "xielu", which has weights.
  [[nodiscard]] virtual bool has_xielu() const { return false; }
  // The values of a weight that is never trained and whose formula is computed, whatever a file
  // has: constants and tables.
  [[nodiscard]] virtual std::optional<Tensor> fixed_values(const ModelConfig& /*config*/,
                                                           const Weight& /*weight*/) const {
    return std::nullopt;
  }
  // Whether transformers reads no tensor of this name, though files may have it.
  [[nodiscard]] virtual bool ignores(const ModelConfig& /*config*/,
                                     std::string_view /*name*/) const {
    return false;
  }
  // What files of the family may call tensors, as transformers' conversion_mapping.py has it.
  [[nodiscard]] virtual StoredNames stored_names() const { return {}; }
  [[nodiscard]] virtual TiedNames tied_names(const ModelConfig& config) const;
};

// Refuses a value of `field` that is none of `known`; a short list is part of the message.
void check_known(const std::string& field, const std::string& value,
                 const std::vector<std::string>& known, const Architecture::Refuse& refuse);
// Refuses a value of `field` that differs from `expected`, the value of `other`; null is equal.
void check_equal(const char* field, const std::optional<int64_t>& value, const char* other,
                 int64_t expected, const Architecture::Refuse& refuse);
// Of families without Head::kPretraining.
[[noreturn]] void refuse_next_sentence_head(const ModelConfig& config);

// Of families that have no class for a task in transformers.
[[noreturn]] void refuse_head(const ModelConfig& config);

// All families, by the alphabet of their names.
[[nodiscard]] const std::vector<const Architecture*>& architectures();
// Throws Error(kConfig) if no class has the model_type.
[[nodiscard]] const Architecture& architecture_of(const ModelConfig& config);

}  // namespace finetune
