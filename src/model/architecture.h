// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/heads.h"

namespace finetune {

// How a family of models is put together. A new family is a new class, a line in architecture_of()
// and its defaults in model_config.cpp; no forward pass asks which family it runs in.
class Architecture {
 public:
  virtual ~Architecture() = default;

  [[nodiscard]] virtual std::string class_prefix() const = 0;  // "Roberta" of RobertaForMaskedLM
  [[nodiscard]] virtual std::string encoder_name() const = 0;  // "roberta": parameters' first name
  [[nodiscard]] virtual std::string lm_head_name() const = 0;  // owner of `bias` and `decoder`

  // `scope` is the encoder's own; no head means masked language modelling, here and below.
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

// Throws Error(kConfig) for a model_type that has no class.
[[nodiscard]] const Architecture& architecture_of(const ModelConfig& config);

[[nodiscard]] const Architecture& bert_architecture();
[[nodiscard]] const Architecture& big_bird_architecture();
[[nodiscard]] const Architecture& roberta_architecture();
[[nodiscard]] const Architecture& xlm_roberta_architecture();

}  // namespace finetune
