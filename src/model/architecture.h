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

// How a family of models is put together: its names, defaults, equation and heads. A new family is
// a new source with such a class, and its line in base/model_families.def; no forward pass asks
// which family it runs in.
class Architecture {
 public:
  virtual ~Architecture() = default;

  // Pairs of names of one tensor, of which the second need not be a parameter.
  using TiedNames = std::vector<std::pair<std::string, std::string>>;

  [[nodiscard]] virtual std::string model_type() const = 0;     // "xlm-roberta" in config.json
  [[nodiscard]] virtual std::string class_prefix() const = 0;   // "Roberta" of RobertaForMaskedLM
  [[nodiscard]] virtual std::string backbone_name() const = 0;  // "roberta": parameters' first name
  [[nodiscard]] virtual std::string lm_head_name() const = 0;   // owner of `bias` and `decoder`
  // Whether the family's language model predicts the next word, not masked ones.
  [[nodiscard]] virtual bool is_causal() const { return false; }
  // Its class: "RobertaForMaskedLM".
  [[nodiscard]] virtual std::string lm_class() const {
    return class_prefix() + (is_causal() ? "ForCausalLM" : "ForMaskedLM");
  }

  // Whether its class has the fields use_cache and, of encoders, is_decoder and
  // add_cross_attention.
  [[nodiscard]] virtual bool has_decoder_fields() const { return true; }

  // Sets transformers' defaults of the family where they differ from ModelConfig's own.
  virtual void set_defaults(ModelConfig& /*config*/) const {}
  // The fields of the family's config.json but the labels; targets are members of `config`.
  // An encoder's, unless overridden.
  [[nodiscard]] virtual ConfigFields fields(ModelConfig& config) const;
  // Fills in what follows from other fields, and refuses numbers that do not fit each other:
  // `refuse` throws, its argument says which fields and what they are.
  using Refuse = std::function<void(const std::string& why)>;
  virtual void complete(ModelConfig& config, const Refuse& refuse) const;
  // Whether layers keep more than what belongs to a sequence: DeBERTa's projected distances.
  [[nodiscard]] virtual bool keeps_tables() const { return false; }
  [[nodiscard]] virtual bool has_block_sparse_attention() const { return false; }
  // Whether positions begin after the padding's own, which shortens the longest sequence.
  [[nodiscard]] virtual bool positions_follow_padding() const { return false; }

  // `scope` is the encoder's own; no head means language modelling, here and below.
  [[nodiscard]] virtual std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                                const ModelConfig& config,
                                                                std::optional<Head> head) const = 0;
  // `root` is the model's scope: a head names its own child.
  [[nodiscard]] virtual std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                             const ModelConfig& config,
                                                             std::optional<Head> head) const = 0;

  [[nodiscard]] virtual bool has_next_sentence_head() const { return true; }
  // Which of the two transformers registers first: parameters are numbered in that order.
  [[nodiscard]] virtual bool head_comes_first() const { return false; }
  // The row of an embedding that starts at zero, the padding's.
  [[nodiscard]] virtual std::optional<int64_t> padding_row(const ModelConfig& config,
                                                           std::string_view parameter) const {
    if (!parameter.ends_with("word_embeddings.weight")) return std::nullopt;
    return config.pad_token_id;
  }
  // By how much a fresh weight's deviation is smaller than initializer_range.
  [[nodiscard]] virtual double fresh_share(const ModelConfig& /*config*/,
                                           std::string_view /*parameter*/) const {
    return 1.0;
  }
  // How many deviations a fresh weight is from zero at most.
  [[nodiscard]] virtual std::optional<double> fresh_cutoff(const ModelConfig& /*config*/) const {
    return std::nullopt;
  }
  // What a fresh norm's weight is: that of Gemma's is added to one.
  [[nodiscard]] virtual double fresh_norm() const { return 1.0; }
  [[nodiscard]] virtual TiedNames tied_names(const ModelConfig& config) const;
};

// Refuses a value of `field` that is none of `known`; a short list is part of the message.
void check_known(const std::string& field, const std::string& value,
                 const std::vector<std::string>& known, const Architecture::Refuse& refuse);
// Of families without Head::kPretraining.
[[noreturn]] void refuse_next_sentence_head(const ModelConfig& config);

// All families, by the alphabet of their names.
[[nodiscard]] const std::vector<const Architecture*>& architectures();
// Throws Error(kConfig) for a model_type that has no class.
[[nodiscard]] const Architecture& architecture_of(const ModelConfig& config);

}  // namespace finetune
