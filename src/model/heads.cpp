// SPDX-License-Identifier: MIT
#include "model/heads.h"

#include "finetune/nn/elementwise.h"

namespace finetune {

PooledClassifier::PooledClassifier(const nn::Scope& scope, const ModelConfig& config,
                                   int64_t outputs, double dropout)
    : dropout_(dropout), project_(scope, config.hidden_size, outputs) {}

nn::Value PooledClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  const nn::Value pooled = in.backbone.pool(in.hidden, p);
  return project_(nn::dropout(pooled, {dropout_, 0, DropoutSite::kPooledOutput}, p), p);
}

TokenClassifier::TokenClassifier(const nn::Scope& scope, const ModelConfig& config, int64_t outputs,
                                 double dropout)
    : dropout_(dropout), project_(scope, config.hidden_size, outputs) {}

nn::Value TokenClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  return project_(nn::dropout(in.hidden, {dropout_, 0, DropoutSite::kTokenOutput}, p), p);
}

FirstTokenClassifier::FirstTokenClassifier(const nn::Scope& scope, const ModelConfig& config,
                                           Activation activation)
    : activation_(activation),
      dropout_(head_dropout(config)),
      dense_(scope / "dense", config.hidden_size, config.hidden_size),
      out_proj_(scope / "out_proj", config.hidden_size, count_labels(config)) {}

nn::Value FirstTokenClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  const nn::Value first =
      nn::dropout(nn::first_token(in.hidden, p), {dropout_, 0, DropoutSite::kClassifierInput}, p);
  const nn::Value x = nn::activate(dense_(first, p), activation_, p);
  return out_proj_(nn::dropout(x, {dropout_, 0, DropoutSite::kClassifierHidden}, p), p);
}

nn::Value LmHead::operator()(const HeadInput& in, nn::Pass& p) const {
  const LmDecoder last = decoder(in.backbone);
  nn::Value logits = nn::linear(transform(in, p), last.weight, last.bias, p);
  return last.softcap == 0.0 ? logits : nn::softcap(std::move(logits), last.softcap, p);
}

DenseLmHead::DenseLmHead(const nn::Scope& scope, const Names& names, const ModelConfig& config,
                         const std::string& activation)
    : bias_(scope.parameter("bias", {config.vocab_size})),
      activation_(find_activation(activation)),
      dense_(names.dense, config.hidden_size, config.hidden_size),
      norm_(names.norm, config.hidden_size, config.layer_norm_eps) {
  if (config.tie_word_embeddings) return;
  decoder_.emplace(scope / "decoder", config.hidden_size, config.vocab_size);
}

nn::Value DenseLmHead::transform(const HeadInput& in, nn::Pass& p) const {
  return norm_(nn::activate(dense_(in.hidden, p), activation_, p), p);
}

LmDecoder DenseLmHead::decoder(const Backbone& backbone) const {
  // An untied decoder has its own bias; transformers then does not use `bias`.
  if (decoder_) return {decoder_->weight(), decoder_->bias(), false};
  return {backbone.word_embedding(), bias_, true};
}

PretrainingHead::PretrainingHead(const nn::Scope& scope, const ModelConfig& config)
    : BertLmHead(scope, config),
      seq_relationship_(scope / "seq_relationship", config.hidden_size, 2) {}

nn::Value PretrainingHead::next_sentence(const HeadInput& in, nn::Pass& p) const {
  return seq_relationship_(in.backbone.pool(in.hidden, p), p);
}

CausalLmHead::CausalLmHead(const nn::Scope& root, Norm norm, const ModelConfig& config)
    : norm_(std::move(norm)), softcap_(config.decoder.final_logit_softcapping.value_or(0.0)) {
  if (config.tie_word_embeddings) return;
  decoder_.emplace(root / "lm_head", config.hidden_size, config.vocab_size, false);
}

nn::Value CausalLmHead::transform(const HeadInput& in, nn::Pass& p) const {
  return std::visit([&](const auto& norm) { return norm(in.hidden, p); }, norm_);
}

LmDecoder CausalLmHead::decoder(const Backbone& backbone) const {
  if (decoder_) return {decoder_->weight(), Tensor(), false, softcap_};
  return {backbone.word_embedding(), Tensor(), true, softcap_};
}

double head_dropout(const ModelConfig& config) {
  return config.classifier_dropout.value_or(config.hidden_dropout_prob);
}

int64_t count_labels(const ModelConfig& config) {
  return static_cast<int64_t>(config.id2label.size());
}

}  // namespace finetune
