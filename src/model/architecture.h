// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/heads.h"

namespace finetune {

// How a family of models is put together: its names, defaults, equation and heads. A new family is
// a new source with such a class, and its line in architectures(); no forward pass asks which
// family it runs in.
class Architecture {
 public:
  virtual ~Architecture() = default;

  [[nodiscard]] virtual std::string model_type() const = 0;    // "xlm-roberta" in config.json
  [[nodiscard]] virtual std::string class_prefix() const = 0;  // "Roberta" of RobertaForMaskedLM
  [[nodiscard]] virtual std::string encoder_name() const = 0;  // "roberta": parameters' first name
  [[nodiscard]] virtual std::string lm_head_name() const = 0;  // owner of `bias` and `decoder`
  // Whether the family's language model predicts the next word, not masked ones.
  [[nodiscard]] virtual bool is_causal() const { return false; }
  // Its class: "RobertaForMaskedLM".
  [[nodiscard]] virtual std::string lm_class() const {
    return class_prefix() + (is_causal() ? "ForCausalLM" : "ForMaskedLM");
  }

  // Sets transformers' defaults of the family where they differ from ModelConfig's own.
  virtual void set_defaults(ModelConfig& /*config*/) const {}
  // Whether config.json has the fields of block-sparse attention.
  [[nodiscard]] virtual bool has_block_sparse_fields() const { return false; }
  // Whether positions begin after the padding's own, which shortens the longest sequence.
  [[nodiscard]] virtual bool positions_follow_padding() const { return false; }

  // `scope` is the encoder's own; no head means language modelling, here and below.
  [[nodiscard]] virtual std::unique_ptr<EncoderModel> make_encoder(
      const nn::Scope& scope, const ModelConfig& config, std::optional<Head> head) const = 0;
  // `root` is the model's scope: a head names its own child.
  [[nodiscard]] virtual std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                             const ModelConfig& config,
                                                             std::optional<Head> head) const = 0;

  [[nodiscard]] virtual bool has_next_sentence_head() const { return true; }
  // Which of the two transformers registers first: parameters are numbered in that order.
  [[nodiscard]] virtual bool head_comes_first() const { return false; }
  // Embeddings whose row pad_token_id starts at zero.
  [[nodiscard]] virtual bool has_padding_row(std::string_view parameter) const {
    return parameter.ends_with("word_embeddings.weight");
  }
};

// All families, by the alphabet of their names.
[[nodiscard]] const std::vector<const Architecture*>& architectures();
// Throws Error(kConfig) for a model_type that has no class.
[[nodiscard]] const Architecture& architecture_of(const ModelConfig& config);

}  // namespace finetune
