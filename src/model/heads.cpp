// SPDX-License-Identifier: MIT
#include "model/heads.h"

#include <ATen/ops/empty.h>

namespace finetune {
namespace {

// Dropout of [B, C], which has no token axis.
Tensor drop_rows(const HeadInput& in, const Tensor& x, double p, DropoutSite site) {
  return in.context.drop(x.unsqueeze(1), p, 0, site).squeeze(1);
}

// W h, activation, norm: "cls.predictions.transform".
class LmTransformImpl final : public nn::Module {
 public:
  explicit LmTransformImpl(const ModelConfig& config)
      : activation_(find_activation(config.hidden_act)),
        dense_(register_module("dense", Linear(config.hidden_size, config.hidden_size))),
        layer_norm_(register_module("LayerNorm", LayerNorm(config))) {}

  Tensor forward(const Tensor& x, const ForwardContext& context) {
    return layer_norm_(activation_(dense_(x, context)), context);
  }

 private:
  Activation activation_;
  Linear dense_;
  LayerNorm layer_norm_;
};

class LmPredictionsImpl final : public DecodingLmHeadImpl {
 public:
  explicit LmPredictionsImpl(const ModelConfig& config)
      : DecodingLmHeadImpl(config),
        transform_(register_module("transform", std::make_shared<LmTransformImpl>(config))) {
    add_decoder(config);
  }

  Tensor transform(const HeadInput& in) override {
    return transform_->forward(in.hidden, in.context);
  }

 private:
  std::shared_ptr<LmTransformImpl> transform_;
};

}  // namespace

LinearHeadImpl::LinearHeadImpl(int64_t inputs, int64_t outputs)
    : weight_(register_parameter("weight", at::empty({outputs, inputs}))),
      bias_(register_parameter("bias", at::empty({outputs}))) {}

Tensor LinearHeadImpl::project(const Tensor& x, const ForwardContext& context) const {
  return linear(x, weight_, bias_, context);
}

PooledClassifierImpl::PooledClassifierImpl(const ModelConfig& config, int64_t outputs,
                                           double dropout)
    : LinearHeadImpl(config.hidden_size, outputs), dropout_(dropout) {}

Tensor PooledClassifierImpl::forward(const HeadInput& in) {
  return project(
      drop_rows(in, in.encoder.pool(in.hidden, in.context), dropout_, DropoutSite::kPooledOutput),
      in.context);
}

TokenClassifierImpl::TokenClassifierImpl(const ModelConfig& config, int64_t outputs, double dropout)
    : LinearHeadImpl(config.hidden_size, outputs), dropout_(dropout) {}

Tensor TokenClassifierImpl::forward(const HeadInput& in) {
  return project(in.context.drop(in.hidden, dropout_, 0, DropoutSite::kTokenOutput), in.context);
}

FirstTokenClassifierImpl::FirstTokenClassifierImpl(const ModelConfig& config, Activation activation)
    : activation_(activation),
      dropout_(head_dropout(config)),
      dense_(register_module("dense", Linear(config.hidden_size, config.hidden_size))),
      out_proj_(register_module("out_proj", Linear(config.hidden_size, count_labels(config)))) {}

Tensor FirstTokenClassifierImpl::forward(const HeadInput& in) {
  const Tensor first = in.hidden.select(1, 0);  // [B, C]
  const Tensor x = activation_(
      dense_(drop_rows(in, first, dropout_, DropoutSite::kClassifierInput), in.context));
  return out_proj_(drop_rows(in, x, dropout_, DropoutSite::kClassifierHidden), in.context);
}

Tensor LmHeadImpl::forward(const HeadInput& in) {
  const LmDecoder last = decoder(in.encoder);
  return linear(transform(in), last.weight, last.bias, in.context);
}

DecodingLmHeadImpl::DecodingLmHeadImpl(const ModelConfig& config)
    : bias_(register_parameter("bias", at::empty({config.vocab_size}))) {}

void DecodingLmHeadImpl::add_decoder(const ModelConfig& config) {
  if (config.tie_word_embeddings) return;
  decoder_ = register_module("decoder", Linear(config.hidden_size, config.vocab_size));
}

LmDecoder DecodingLmHeadImpl::decoder(const EncoderModelImpl& encoder) const {
  // A decoder that is not tied adds a bias of its own; transformers then leaves `bias` unused.
  if (!decoder_.is_empty()) return {decoder_->weight, decoder_->bias, false};
  return {encoder.word_embedding(), bias_, true};
}

RobertaLmHeadImpl::RobertaLmHeadImpl(const ModelConfig& config)
    : DecodingLmHeadImpl(config),
      dense_(register_module("dense", Linear(config.hidden_size, config.hidden_size))),
      layer_norm_(register_module("layer_norm", LayerNorm(config))) {
  add_decoder(config);
}

Tensor RobertaLmHeadImpl::transform(const HeadInput& in) {
  static const Activation kGelu = find_activation("gelu");
  return layer_norm_(kGelu(dense_(in.hidden, in.context)), in.context);
}

BertLmHeadImpl::BertLmHeadImpl(const ModelConfig& config)
    : predictions_(register_module("predictions", std::make_shared<LmPredictionsImpl>(config))) {}

PretrainingHeadImpl::PretrainingHeadImpl(const ModelConfig& config)
    : predictions_(register_module("predictions", std::make_shared<LmPredictionsImpl>(config))),
      seq_relationship_(register_module("seq_relationship", Linear(config.hidden_size, 2))) {}

Tensor PretrainingHeadImpl::next_sentence(const HeadInput& in) const {
  return seq_relationship_->forward(in.encoder.pool(in.hidden, in.context), in.context);
}

double head_dropout(const ModelConfig& config) {
  return config.classifier_dropout.value_or(config.hidden_dropout_prob);
}

int64_t count_labels(const ModelConfig& config) {
  return static_cast<int64_t>(config.id2label.size());
}

}  // namespace finetune
