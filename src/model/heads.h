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
  [[nodiscard]] Tensor project(const Tensor& x, const ForwardContext& context) const;

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
  Linear dense_, out_proj_;
};

// logits = W x + b of the vocabulary.
struct LmDecoder {
  Tensor weight;  // [V, C]
  Tensor bias;    // [V]
  bool is_tied;   // the weight is the word embedding
};

// A head over the vocabulary, in two steps so that a loss need not make all logits.
class LmHeadImpl : public HeadImpl {
 public:
  virtual Tensor transform(const HeadInput& in) = 0;  // -> x [N, C]
  [[nodiscard]] virtual LmDecoder decoder(const EncoderModelImpl& encoder) const = 0;
  Tensor forward(const HeadInput& in) final;
};

// W is the word embedding (tied) or a decoder of the head's own.
class DecodingLmHeadImpl : public LmHeadImpl {
 public:
  [[nodiscard]] LmDecoder decoder(const EncoderModelImpl& encoder) const final;

 protected:
  explicit DecodingLmHeadImpl(const ModelConfig& config);
  void add_decoder(const ModelConfig& config);  // last of the children, as transformers counts

 private:
  Tensor bias_;  // [V]
  Linear decoder_{nullptr};
};

// "lm_head": x = LN(GELU(W h)), the exact GELU whatever hidden_act says.
class RobertaLmHeadImpl final : public DecodingLmHeadImpl {
 public:
  explicit RobertaLmHeadImpl(const ModelConfig& config);
  Tensor transform(const HeadInput& in) override;

 private:
  Linear dense_;
  LayerNorm layer_norm_;
};

// "cls": x = LN(f(W h)) with f = hidden_act; parameters stand under "cls.predictions".
class BertLmHeadImpl final : public LmHeadImpl {
 public:
  explicit BertLmHeadImpl(const ModelConfig& config);
  Tensor transform(const HeadInput& in) override { return predictions_->transform(in); }
  [[nodiscard]] LmDecoder decoder(const EncoderModelImpl& encoder) const override {
    return predictions_->decoder(encoder);
  }

 private:
  std::shared_ptr<LmHeadImpl> predictions_;
};

// "cls": the masked LM's head and "cls.seq_relationship" over the pooled first token.
class PretrainingHeadImpl final : public LmHeadImpl {
 public:
  explicit PretrainingHeadImpl(const ModelConfig& config);
  Tensor transform(const HeadInput& in) override { return predictions_->transform(in); }
  [[nodiscard]] LmDecoder decoder(const EncoderModelImpl& encoder) const override {
    return predictions_->decoder(encoder);
  }
  // Of hidden states [B, 1, C], the first tokens', -> [B, 2].
  Tensor next_sentence(const HeadInput& in) const;

 private:
  std::shared_ptr<LmHeadImpl> predictions_;
  Linear seq_relationship_;
};

// Dropout in heads: classifier_dropout, or hidden_dropout_prob where there is none.
[[nodiscard]] double head_dropout(const ModelConfig& config);
[[nodiscard]] int64_t count_labels(const ModelConfig& config);

}  // namespace finetune
