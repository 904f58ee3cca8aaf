// SPDX-License-Identifier: MIT
#pragma once

#include <variant>

#include "model/activation.h"
#include "model/bert.h"

namespace finetune {

struct HeadInput {
  const Backbone& backbone;
  const ModelInput& input;  // as prepare() returned it
  const nn::Value& hidden;  // [B, T, C]; for a masked LM [N, C]; float32
};

// Computes logits from the backbone's output. It is the model's other child, under its own name in
// the checkpoint.
class ModelHead {
 public:
  virtual ~ModelHead() = default;
  // Returns the input for the encoder; a head may add to it.
  [[nodiscard]] virtual ModelInput prepare(const ModelInput& input) const { return input; }
  virtual nn::Value operator()(const HeadInput& in, nn::Pass& p) const = 0;  // -> logits
  // Float32 tensors of the hidden states' size that exist at once while the head runs, for plans of
  // memory.
  [[nodiscard]] virtual int64_t hidden_tensors() const { return 1; }
};

// logits = W Dropout(pooled) + b, [B, outputs]
class PooledClassifier final : public ModelHead {
 public:
  PooledClassifier(const nn::Scope& scope, const ModelConfig& config, int64_t outputs,
                   double dropout);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;

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
  [[nodiscard]] int64_t hidden_tensors() const override { return dropout_ == 0.0 ? 1 : 2; }

 private:
  double dropout_;
  nn::Linear project_;
};

// logits = W2 Dropout(f(W1 Dropout(first token) + b1)) + b2, [B, labels]
class FirstTokenClassifier final : public ModelHead {
 public:
  FirstTokenClassifier(const nn::Scope& scope, const ModelConfig& config, Activation activation);
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const override;

 private:
  Activation activation_;
  double dropout_;
  nn::Linear dense_, out_proj_;
};

// The last layer of a language model: logits = W x + b over the vocabulary.
struct LmDecoder {
  Tensor weight;         // [V, C]
  Tensor bias;           // [V], or undefined
  bool is_tied;          // the weight is the word embedding
  double softcap = 0.0;  // c: logits x become c tanh(x / c); 0: no soft-capping
};

// A head over the vocabulary, in two steps so that a loss can compute the logits in chunks.
class LmHead : public ModelHead {
 public:
  virtual nn::Value transform(const HeadInput& in, nn::Pass& p) const = 0;  // -> x [N, C]
  [[nodiscard]] virtual LmDecoder decoder(const Backbone& backbone) const = 0;
  // At the positions of targets: the input, the three steps of transform(), and a gradient.
  [[nodiscard]] int64_t hidden_tensors() const override { return 5; }
  nn::Value operator()(const HeadInput& in, nn::Pass& p) const final;
};

// x = LN(f(W h)), decoded by the word embedding (tied) or by a separate decoder. Subclasses choose
// the scopes of W and LN; "bias" and "decoder" belong to `scope`.
class DenseLmHead : public LmHead {
 public:
  nn::Value transform(const HeadInput& in, nn::Pass& p) const final;
  [[nodiscard]] LmDecoder decoder(const Backbone& backbone) const final;

 protected:
  struct Names {
    nn::Scope dense, norm;
  };
  DenseLmHead(const nn::Scope& scope, const Names& names, const ModelConfig& config,
              const std::string& activation);

 private:
  // In transformers' order.
  Tensor bias_;  // [V]
  Activation activation_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
  std::optional<nn::Linear> decoder_;
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

// x = norm(h), decoded by the word embedding (tied) or by "lm_head".
class CausalLmHead final : public LmHead {
 public:
  using Norm = std::variant<nn::RmsNorm, nn::LayerNorm>;
  CausalLmHead(const nn::Scope& root, Norm norm, const ModelConfig& config);
  nn::Value transform(const HeadInput& in, nn::Pass& p) const override;
  [[nodiscard]] LmDecoder decoder(const Backbone& backbone) const override;

 private:
  Norm norm_;
  std::optional<nn::Linear> decoder_;
  double softcap_;
};

// Dropout in heads: classifier_dropout, or hidden_dropout_prob if that is null.
[[nodiscard]] double head_dropout(const ModelConfig& config);
[[nodiscard]] int64_t count_labels(const ModelConfig& config);

}  // namespace finetune
