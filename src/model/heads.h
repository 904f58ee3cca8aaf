// SPDX-License-Identifier: MIT
#pragma once

#include <variant>

#include "model/activation.h"
#include "model/bert.h"

namespace finetune {

struct HeadInput {
  const Backbone& backbone;
  const ModelInput& input;  // as prepare() returned it
  // [B, T, C], or [B, 1, C] of the tokens at read_positions(); for a masked LM [N, C]; float32
  const nn::Value& hidden;
};

// Computes logits from the backbone's output. It is the model's other child, under its own name in
// the checkpoint.
class ModelHead {
 public:
  virtual ~ModelHead() = default;
  // Returns the input for the encoder; a head may add to it.
  [[nodiscard]] virtual ModelInput prepare(const ModelInput& input) const { return input; }
  virtual nn::Value operator()(const HeadInput& in, nn::Pass& p) const = 0;  // -> logits
  // The token of each row that it reads, [B] int64, each b * T + t; undefined: it reads all.
  [[nodiscard]] virtual Tensor read_positions(const ModelInput& /*input*/) const { return {}; }
};

// logits = W Dropout(pooled) + b, [B, outputs]
class PooledClassifier final : public ModelHead {
 public:
  PooledClassifier(const nn::Scope& scope, const ModelConfig& config, int64_t outputs,
                   double dropout);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;
  [[nodiscard]] Tensor read_positions(const ModelInput& input) const override;

 private:
  double dropout_;
  nn::Linear project_;
};

// logits = W Dropout(hidden) + b, [B, T, outputs]
class TokenClassifier final : public ModelHead {
 public:
  TokenClassifier(const nn::Scope& scope, const ModelConfig& config, int64_t outputs,
                  double dropout);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;

 private:
  double dropout_;
  nn::Linear project_;
};

// LN(f(W x + b)), the first layer of a head; some have no norm.
class HeadTransform {
 public:
  HeadTransform(nn::Linear dense, Activation activation, std::optional<nn::LayerNorm> norm = {})
      : dense_(std::move(dense)), activation_(activation), norm_(std::move(norm)) {}
  nn::Value operator()(nn::Value x, nn::Pass& p) const;
  [[nodiscard]] int64_t size() const { return dense_.weight().size(0); }

 private:
  nn::Linear dense_;
  Activation activation_;
  std::optional<nn::LayerNorm> norm_;
};

// The tokens that a classifier reads: all, or one vector per sequence.
enum class TokensRead { kAll, kFirst, kFirstReal, kLast, kMean };
// Those of a family whose heads differ in nothing else; `means`: a sequence is read by its mean.
[[nodiscard]] TokensRead tokens_read(Head head, bool means);

struct DenseClassifierOptions {
  int64_t outputs = 0;
  TokensRead tokens = TokensRead::kFirst;  // kFirstReal: padding may come before the first token
  bool has_bias = true;
  std::optional<int64_t> padding = {};  // the id, for kLast
  double input_dropout = 0.0, dropout = 0.0;
  std::optional<DropoutSite> site = {};  // of `dropout`; by default as the tokens say
};

// logits = W Dropout(transform(Dropout(tokens))) + b: [B, outputs], or [B, T, outputs] of all
// tokens.
class DenseClassifier final : public ModelHead {
 public:
  // `scope` is the scope of W and b, which are created after `transform`.
  DenseClassifier(HeadTransform transform, const nn::Scope& scope,
                  const DenseClassifierOptions& options);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;
  [[nodiscard]] Tensor read_positions(const ModelInput& input) const override;

 private:
  // The token of each row, [B]; undefined: all.
  [[nodiscard]] Tensor token_of_rows(const ModelInput& input) const;
  [[nodiscard]] nn::Value read(const HeadInput& in, nn::Pass& p) const;

  DenseClassifierOptions options_;
  HeadTransform transform_;
  nn::Linear classifier_;
};

// RoBERTa's classifier of sequences: "dense" and "out_proj".
[[nodiscard]] std::unique_ptr<ModelHead> first_token_classifier(const nn::Scope& scope,
                                                                const ModelConfig& config,
                                                                Activation activation);

// A head over the vocabulary, in two steps so that a loss can compute the logits in chunks.
class LmHead : public ModelHead {
 public:
  virtual nn::Value transform(const HeadInput& in, nn::Pass& p) const = 0;  // -> x [N, C]
  [[nodiscard]] virtual LmDecoder decoder(const Backbone& backbone) const = 0;
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const final;
};

// x = LN(f(W h)), decoded by the word embedding (tied) or by a separate decoder. Subclasses choose
// the scopes of W and LN; "bias" and "decoder" belong to `scope`.
class DenseLmHead : public LmHead {
 public:
  struct Names {
    nn::Scope dense, norm;
  };
  // `size`: C, if it is not the backbone's.
  DenseLmHead(const nn::Scope& scope, const Names& names, const ModelConfig& config,
              const std::string& activation, std::optional<int64_t> size = std::nullopt);
  // `decoder` is the scope of the bias, if there is one, and of the weight of an untied decoder.
  DenseLmHead(HeadTransform transform, const nn::Scope& decoder, const ModelConfig& config,
              bool has_bias);
  nn::Value transform(const HeadInput& in, nn::Pass& p) const final;
  [[nodiscard]] LmDecoder decoder(const Backbone& backbone) const final;

 private:
  Weight bias_;  // [V]; may be undefined; before the transform, as in transformers
  HeadTransform transform_;
  Weight weight_;  // [V, C]; undefined if tied
};

// "lm_head" with the exact GELU, whatever hidden_act is.
class RobertaLmHead final : public DenseLmHead {
 public:
  RobertaLmHead(const nn::Scope& scope, const ModelConfig& config)
      : DenseLmHead(scope, {scope / "dense", scope / "layer_norm"}, config, "gelu") {}
};

// "cls": f = hidden_act; parameters are named "cls.predictions...".
class BertLmHead : public DenseLmHead {
 public:
  BertLmHead(const nn::Scope& scope, const ModelConfig& config)
      : DenseLmHead(scope / "predictions",
                    {scope / "predictions" / "transform" / "dense",
                     scope / "predictions" / "transform" / "LayerNorm"},
                    config, config.hidden_act) {}
};

// "cls": the masked LM's head, and "cls.seq_relationship" on the pooled first token.
class PretrainingHead final : public BertLmHead {
 public:
  PretrainingHead(const nn::Scope& scope, const ModelConfig& config);
  // From the hidden states of the first tokens [B, 1, C] to [B, 2].
  nn::Value next_sentence(const HeadInput& in, nn::Pass& p) const;

 private:
  nn::Linear seq_relationship_;
};

// The last norm of a decoder, which belongs to its backbone by name.
using DecoderNorm = std::variant<nn::RmsNorm, nn::LayerNorm>;

// x = norm(h) / logits_scaling, decoded by the word embedding (tied) or by the weight of `scope`,
// which may have a bias.
class CausalLmHead final : public LmHead {
 public:
  CausalLmHead(const nn::Scope& scope, DecoderNorm norm, const ModelConfig& config,
               bool has_bias = false);
  nn::Value transform(const HeadInput& in, nn::Pass& p) const override;
  [[nodiscard]] LmDecoder decoder(const Backbone& backbone) const override;

 private:
  DecoderNorm norm_;
  std::optional<nn::Linear> decoder_;
  Weight bias_;  // [V]; may be undefined
  double softcap_, scale_;
};

// logits = W Dropout(norm(h)) + b of a decoder: of all tokens [B, T, labels], or without dropout
// and bias of the last token that is not padding, [B, labels].
class DecoderClassifier final : public ModelHead {
 public:
  // `scope` is that of W and b.
  DecoderClassifier(DecoderNorm norm, const nn::Scope& scope, const ModelConfig& config,
                    bool of_tokens);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;
  [[nodiscard]] Tensor read_positions(const ModelInput& input) const override;

 private:
  DecoderNorm norm_;
  nn::Linear score_;
  std::optional<int64_t> padding_;
  double dropout_;
  bool of_tokens_;
};

// A vector for each row, [B, C]: hidden states after the last norm, pooled,
// and what dense layers make of it.
class EmbeddingHead final : public ModelHead {
 public:
  EmbeddingHead(std::optional<DecoderNorm> norm, const nn::Scope& root, const ModelConfig& config);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;
  [[nodiscard]] Tensor read_positions(const ModelInput& input) const override;

 private:
  [[nodiscard]] bool reads_one_token() const;
  // The token of each row, [B], if it reads one.
  [[nodiscard]] Tensor token_of_rows(const ModelInput& input) const;
  [[nodiscard]] nn::Value pooled(const HeadInput& in, nn::Pass& p) const;

  std::optional<DecoderNorm> norm_;
  std::string pooling_mode_;
  std::vector<HeadTransform> dense_;
  bool normalizes_;
};

// scores = W norm(h) + b of the tokens that are read, [N, verbalizers], soft-capped:
// transformers' JevForDecision.
class JevHead final : public ModelHead {
 public:
  JevHead(std::optional<DecoderNorm> norm, const nn::Scope& scope, const ModelConfig& config);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;

 private:
  std::optional<DecoderNorm> norm_;
  nn::Linear project_;
  double softcap_;
};

// Dropout in heads: classifier_dropout, or hidden_dropout_prob if that is null.
[[nodiscard]] double head_dropout(const ModelConfig& config);
[[nodiscard]] int64_t count_labels(const ModelConfig& config);
// One for a choice, else the number of labels.
[[nodiscard]] int64_t count_outputs(const ModelConfig& config, Head head);

}  // namespace finetune
