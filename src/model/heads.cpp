// SPDX-License-Identifier: MIT
#include "model/heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "finetune/model/embedding_files.h"
#include "finetune/nn/elementwise.h"

namespace finetune {
namespace {

// The last token of each row that is not padding, [B]: by its id, as in transformers, or by the
// mask where no id is known.
Tensor last_tokens(const ModelInput& input, const std::optional<int64_t>& padding) {
  const Tensor& ids = input.input_ids;
  const Tensor positions = at::arange(ids.size(1), ids.options());
  if (padding) return at::argmax(positions * ids.ne(*padding), -1);
  if (input.attention_mask.defined()) return at::argmax(positions * input.attention_mask, -1);
  return at::full({ids.size(0)}, ids.size(1) - 1, ids.options());
}

Tensor first_tokens(const ModelInput& input) {
  return at::zeros({input.input_ids.size(0)}, input.input_ids.options());
}

// As above, but of rows that may begin with padding.
Tensor first_real_tokens(const ModelInput& input) {
  if (!input.attention_mask.defined()) return first_tokens(input);
  return at::argmax(input.attention_mask.to(at::kInt), -1);
}

// Of `tokens` [B], one of each row, each b * T + t.
Tensor positions_of(const Tensor& tokens, const ModelInput& input) {
  if (!tokens.defined()) return {};
  const Tensor& ids = input.input_ids;
  return at::arange(ids.size(0), ids.options()) * ids.size(1) + tokens;
}

// [B, C]: the token of each row, of all or of what was read; `tokens` looks for them in all.
template <typename Tokens>
nn::Value token_of(const HeadInput& in, const Tokens& tokens, nn::Pass& p) {
  if (in.hidden.tensor.size(1) == 1) return nn::first_token(in.hidden, p);
  return nn::token_at(in.hidden, tokens(), p);
}

}  // namespace

PooledClassifier::PooledClassifier(const nn::Scope& scope, const ModelConfig& config,
                                   int64_t outputs, double dropout)
    : dropout_(dropout), project_(scope, config.hidden_size, outputs) {}

nn::Value PooledClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  const nn::Value pooled = in.backbone.pool(in.hidden, p);
  return project_(nn::dropout(pooled, {dropout_, 0, DropoutSite::kPooledOutput}, p), p);
}

Tensor PooledClassifier::read_positions(const ModelInput& input) const {
  return positions_of(first_tokens(input), input);
}

TokenClassifier::TokenClassifier(const nn::Scope& scope, const ModelConfig& config, int64_t outputs,
                                 double dropout)
    : dropout_(dropout), project_(scope, config.hidden_size, outputs) {}

nn::Value TokenClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  return project_(nn::dropout(in.hidden, {dropout_, 0, DropoutSite::kTokenOutput}, p), p);
}

nn::Value HeadTransform::operator()(nn::Value x, nn::Pass& p) const {
  nn::Value y = nn::activate(dense_(std::move(x), p), activation_, p);
  return norm_ ? (*norm_)(y, p) : y;
}

TokensRead tokens_read(Head head, bool means) {
  if (head == Head::kTokenClassification || head == Head::kQuestionAnswering) {
    return TokensRead::kAll;
  }
  if (means) return TokensRead::kMean;
  return head == Head::kMultipleChoice ? TokensRead::kFirstReal : TokensRead::kFirst;
}

DenseClassifier::DenseClassifier(HeadTransform transform, const nn::Scope& scope,
                                 const DenseClassifierOptions& options)
    : options_(options),
      transform_(std::move(transform)),
      classifier_(scope, transform_.size(), options.outputs, options.has_bias) {}

Tensor DenseClassifier::token_of_rows(const ModelInput& input) const {
  switch (options_.tokens) {
    case TokensRead::kAll:
    case TokensRead::kMean:
      return {};
    case TokensRead::kFirstReal:
      return first_real_tokens(input);
    case TokensRead::kLast:
      return last_tokens(input, options_.padding);
    case TokensRead::kFirst:
      break;
  }
  return first_tokens(input);
}

Tensor DenseClassifier::read_positions(const ModelInput& input) const {
  return positions_of(token_of_rows(input), input);
}

nn::Value DenseClassifier::read(const HeadInput& in, nn::Pass& p) const {
  if (options_.tokens == TokensRead::kAll) return in.hidden;
  if (options_.tokens == TokensRead::kMean) {
    return nn::mean_of_tokens(in.hidden, in.input.attention_mask, p);
  }
  if (options_.tokens == TokensRead::kFirst) return nn::first_token(in.hidden, p);
  return token_of(
      in, [&] { return token_of_rows(in.input); }, p);
}

nn::Value DenseClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  const DropoutSite site = options_.site.value_or(
      options_.tokens == TokensRead::kAll ? DropoutSite::kTokenOutput : DropoutSite::kPooledOutput);
  nn::Value x =
      nn::dropout(read(in, p), {options_.input_dropout, 0, DropoutSite::kClassifierInput}, p);
  x = transform_(std::move(x), p);
  return classifier_(nn::dropout(std::move(x), {options_.dropout, 0, site}, p), p);
}

std::unique_ptr<ModelHead> first_token_classifier(const nn::Scope& scope, const ModelConfig& config,
                                                  Activation activation) {
  const double dropout = head_dropout(config);
  return std::make_unique<DenseClassifier>(
      HeadTransform({scope / "dense", config.hidden_size, config.hidden_size}, activation),
      scope / "out_proj",
      DenseClassifierOptions{.outputs = count_labels(config),
                             .input_dropout = dropout,
                             .dropout = dropout,
                             .site = DropoutSite::kClassifierHidden});
}

nn::Value LmHead::operator()(const HeadInput& in, nn::Pass& p) const {
  const LmDecoder last = decoder(in.backbone);
  nn::Value logits = nn::linear(transform(in, p), last.weight, last.bias, p);
  return last.softcap == 0.0 ? logits : nn::softcap(std::move(logits), last.softcap, p);
}

DenseLmHead::DenseLmHead(const nn::Scope& scope, const Names& names, const ModelConfig& config,
                         const std::string& activation, std::optional<int64_t> size)
    : bias_(scope.parameter("bias", {config.vocab_size})),
      transform_{
          {names.dense, config.hidden_size, size.value_or(config.hidden_size)},
          find_activation(activation),
          nn::LayerNorm(names.norm, size.value_or(config.hidden_size), config.layer_norm_eps)} {
  if (config.tie_word_embeddings) return;
  // An untied decoder has its own bias; transformers then does not use `bias`.
  const nn::Linear decoder((scope / "decoder").of_output(), size.value_or(config.hidden_size),
                           config.vocab_size);
  weight_ = decoder.weight();
  bias_ = decoder.bias();
}

DenseLmHead::DenseLmHead(HeadTransform transform, const nn::Scope& decoder,
                         const ModelConfig& config, bool has_bias)
    : transform_(std::move(transform)) {
  if (!config.tie_word_embeddings) {
    weight_ = decoder.parameter("weight", {config.vocab_size, config.hidden_size});
  }
  if (has_bias) bias_ = decoder.parameter("bias", {config.vocab_size});
}

nn::Value DenseLmHead::transform(const HeadInput& in, nn::Pass& p) const {
  return transform_(in.hidden, p);
}

LmDecoder DenseLmHead::decoder(const Backbone& backbone) const {
  if (weight_.defined()) return {weight_, bias_, false};
  return {backbone.word_embedding(), bias_, true};
}

PretrainingHead::PretrainingHead(const nn::Scope& scope, const ModelConfig& config)
    : BertLmHead(scope, config),
      seq_relationship_(scope / "seq_relationship", config.hidden_size, 2) {}

nn::Value PretrainingHead::next_sentence(const HeadInput& in, nn::Pass& p) const {
  return seq_relationship_(in.backbone.pool(in.hidden, p), p);
}

CausalLmHead::CausalLmHead(const nn::Scope& scope, DecoderNorm norm, const ModelConfig& config,
                           bool has_bias)
    : norm_(std::move(norm)),
      softcap_(config.decoder.final_logit_softcapping.value_or(0.0)),
      scale_(1.0 / config.decoder.logits_scaling) {
  const nn::Scope output = scope.of_output();
  if (!config.tie_word_embeddings) {
    decoder_.emplace(output, config.hidden_size, config.vocab_size, false);
  }
  if (has_bias) bias_ = output.parameter("bias", {config.vocab_size});
}

namespace {

nn::Value normed(const DecoderNorm& norms, const nn::Value& x, nn::Pass& p) {
  return std::visit([&](const auto& norm) { return norm(x, p); }, norms);
}

}  // namespace

nn::Value CausalLmHead::transform(const HeadInput& in, nn::Pass& p) const {
  nn::Value x = normed(norm_, in.hidden, p);
  return scale_ == 1.0 ? std::move(x) : nn::scale(std::move(x), scale_, p);
}

LmDecoder CausalLmHead::decoder(const Backbone& backbone) const {
  if (decoder_) return {decoder_->weight(), bias_, false, softcap_};
  return {backbone.word_embedding(), bias_, true, softcap_};
}

DecoderClassifier::DecoderClassifier(DecoderNorm norm, const nn::Scope& scope,
                                     const ModelConfig& config, bool of_tokens)
    : norm_(std::move(norm)),
      score_(scope, config.hidden_size, count_labels(config), /*has_bias=*/of_tokens),
      padding_(config.decoder.pad_token_id),
      dropout_(of_tokens ? config.classifier_dropout.value_or(0.1) : 0.0),
      of_tokens_(of_tokens) {}

nn::Value DecoderClassifier::operator()(const HeadInput& in, nn::Pass& p) const {
  nn::Value x = in.hidden;
  if (!of_tokens_)
    x = token_of(
        in, [&] { return last_tokens(in.input, padding_); }, p);
  x = nn::dropout(normed(norm_, x, p), {dropout_, 0, DropoutSite::kTokenOutput}, p);
  return score_(std::move(x), p);
}

Tensor DecoderClassifier::read_positions(const ModelInput& input) const {
  return of_tokens_ ? Tensor() : positions_of(last_tokens(input, padding_), input);
}

EmbeddingHead::EmbeddingHead(std::optional<DecoderNorm> norm, const nn::Scope& root,
                             const ModelConfig& config)
    : norm_(std::move(norm)),
      pooling_mode_(pooling_mode_of(config)),
      normalizes_(config.embedding.normalize) {
  for (const DenseConfig& dense : config.embedding.dense) {
    const nn::Scope scope = (root / dense.module / "linear").of_output();
    dense_.emplace_back(nn::Linear(scope, dense.in_features, dense.out_features, dense.bias),
                        find_activation(transformers_activation(dense)));
  }
}

nn::Value EmbeddingHead::operator()(const HeadInput& in, nn::Pass& p) const {
  nn::Value vectors = pooled(in, p);
  for (const HeadTransform& dense : dense_) vectors = dense(std::move(vectors), p);
  return normalizes_ ? nn::normalized(std::move(vectors), p) : vectors;
}

bool EmbeddingHead::reads_one_token() const {
  return pooling_mode_ == "lasttoken" || pooling_mode_ == "cls";
}

Tensor EmbeddingHead::token_of_rows(const ModelInput& input) const {
  return pooling_mode_ == "cls" ? first_real_tokens(input) : last_tokens(input, std::nullopt);
}

Tensor EmbeddingHead::read_positions(const ModelInput& input) const {
  return reads_one_token() ? positions_of(token_of_rows(input), input) : Tensor();
}

// As sentence-transformers' Pooling does it.
nn::Value EmbeddingHead::pooled(const HeadInput& in, nn::Pass& p) const {
  const Tensor& ids = in.input.input_ids;
  const Tensor& pooled = in.input.pooled_tokens;
  const Tensor mask = pooled.defined() ? pooled : in.input.attention_mask;
  if (reads_one_token()) {
    const nn::Value token = token_of(
        in, [&] { return token_of_rows(in.input); }, p);
    return norm_ ? normed(*norm_, token, p) : token;
  }
  const nn::Value hidden = norm_ ? normed(*norm_, in.hidden, p) : in.hidden;
  if (pooling_mode_ != "weightedmean") return nn::mean_of_tokens(hidden, mask, p);
  // Muennighoff 2022, "SGPT", eq. 2: token i counts i times.
  const Tensor weights = at::arange(1, ids.size(1) + 1, ids.options()).expand_as(ids);
  return nn::mean_of_tokens(hidden, mask.defined() ? weights * mask : weights, p);
}

JevHead::JevHead(std::optional<DecoderNorm> norm, const nn::Scope& scope, const ModelConfig& config)
    : norm_(std::move(norm)),
      project_(scope.of_output(), config.hidden_size, config.jev.num_verbalizers),
      softcap_(config.jev.softcap) {}

nn::Value JevHead::operator()(const HeadInput& in, nn::Pass& p) const {
  nn::Value scores = project_(norm_ ? normed(*norm_, in.hidden, p) : in.hidden, p);
  return softcap_ == 0.0 ? scores : nn::softcap(std::move(scores), softcap_, p);
}

double head_dropout(const ModelConfig& config) {
  return config.classifier_dropout.value_or(config.hidden_dropout_prob);
}

int64_t count_labels(const ModelConfig& config) {
  return static_cast<int64_t>(config.id2label.size());
}

int64_t count_outputs(const ModelConfig& config, Head head) {
  return head == Head::kMultipleChoice ? 1 : count_labels(config);
}

}  // namespace finetune
