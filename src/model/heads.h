// SPDX-License-Identifier: MIT
#pragma once

#include "model/encoder.h"

namespace finetune {

struct HeadInput {
  EncoderModelImpl& encoder;
  const ModelInput& input;  // as the encoder saw it
  const Tensor& hidden;     // [B, T, C]; of a masked LM [N, C]
  const ForwardContext& context;
};

// What stands on an encoder: the model's other child, under its own name in the checkpoint.
class HeadImpl : public nn::Module {
 public:
  // What the encoder shall see; a head may add to it.
  [[nodiscard]] virtual ModelInput prepare(const ModelInput& input) const { return input; }
  virtual Tensor forward(const HeadInput& in) = 0;
};

// A linear layer whose parameters are the head's own: "classifier.weight", "qa_outputs.bias".
class LinearHeadImpl : public HeadImpl {
 protected:
  LinearHeadImpl(int64_t inputs, int64_t outputs);
  [[nodiscard]] Tensor project(const Tensor& x) const;

 private:
  Tensor weight_, bias_;
};

// logits = W Dropout(pooled) + b, [B, outputs]
class PooledClassifierImpl final : public LinearHeadImpl {
 public:
  PooledClassifierImpl(const ModelConfig& config, int64_t outputs, double dropout);
  Tensor forward(const HeadInput& in) override;

 private:
  double dropout_;
};

// logits = W Dropout(hidden) + b, [B, T, outputs]
class TokenClassifierImpl final : public LinearHeadImpl {
 public:
  TokenClassifierImpl(const ModelConfig& config, int64_t outputs, double dropout);
  Tensor forward(const HeadInput& in) override;

 private:
  double dropout_;
};

// logits = W2 Dropout(f(W1 Dropout(first token) + b1)) + b2, [B, labels]
class FirstTokenClassifierImpl final : public HeadImpl {
 public:
  FirstTokenClassifierImpl(const ModelConfig& config, Activation activation);
  Tensor forward(const HeadInput& in) override;

 private:
  Activation activation_;
  double dropout_;
  nn::Linear dense_, out_proj_;
};

// logits = E x + b with E the word embedding (tied) or a decoder of its own.
class LmHeadImpl : public HeadImpl {
 protected:
  explicit LmHeadImpl(const ModelConfig& config);
  void add_decoder(const ModelConfig& config);  // last of the children, as transformers counts
  Tensor decode(const Tensor& x, const EncoderModelImpl& encoder);  // [N, C] -> [N, V]

 private:
  Tensor bias_;  // [V]
  nn::Linear decoder_{nullptr};
};

// "lm_head": x = LN(GELU(W h)), the exact GELU whatever hidden_act says.
class RobertaLmHeadImpl final : public LmHeadImpl {
 public:
  explicit RobertaLmHeadImpl(const ModelConfig& config);
  Tensor forward(const HeadInput& in) override;

 private:
  nn::Linear dense_;
  nn::LayerNorm layer_norm_;
};

// "cls": x = LN(f(W h)) with f = hidden_act; parameters stand under "cls.predictions".
class BertLmHeadImpl final : public HeadImpl {
 public:
  explicit BertLmHeadImpl(const ModelConfig& config);
  Tensor forward(const HeadInput& in) override { return predictions_->forward(in); }

 private:
  std::shared_ptr<HeadImpl> predictions_;
};

// Dropout in heads: classifier_dropout, or hidden_dropout_prob where there is none.
[[nodiscard]] double head_dropout(const ModelConfig& config);
[[nodiscard]] int64_t count_labels(const ModelConfig& config);

}  // namespace finetune
