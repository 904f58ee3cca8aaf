// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "finetune/base/error.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/nn/disentangled_attention.h"
#include "model/activation.h"
#include "model/architecture.h"
#include "model/bert.h"

namespace finetune {
namespace {

constexpr int64_t kFarthest = 128;  // distances from here on share a bucket

// The bucket of each distance i - j from -(T - 1) to T - 1: half of them for later keys,
// exact for the first half of those, then by logarithm. In float32, as in transformers.
Tensor bucket_of_each(int64_t buckets, int64_t tokens) {
  const Tensor distance = at::arange(1 - tokens, tokens, at::kLong);
  const int64_t half = buckets / 2;
  const int64_t exact = half / 2;
  const Tensor size = distance.abs();
  const double range = std::log(static_cast<double>(kFarthest) / static_cast<double>(exact));
  const Tensor far = (at::log(size.clamp_min(1).to(at::kFloat) / exact) / range *
                      static_cast<double>(half - exact))
                         .to(at::kLong)
                         .add(exact)
                         .clamp_max(half - 1);
  return at::where(size.lt(exact), size, far) + distance.lt(0).to(at::kLong) * half;
}

nn::Distances distances(int64_t buckets, int64_t tokens, c10::Device device, const nn::Pass& p) {
  const auto rows_of = [buckets](int64_t most) { return bucket_of_each(buckets, most); };
  if (nn::is_recorded(p, device)) return nn::recorded_distances(rows_of, tokens, device);
  if (device.is_meta()) {
    const auto integers = at::TensorOptions(at::kLong).device(device);
    return {tokens, at::empty({2 * tokens - 1}, integers), {}};
  }
  return {tokens, uploaded(rows_of(tokens), device), {}};
}

class MpnetLayer {
 public:
  MpnetLayer(const nn::Scope& scope, const ModelConfig& config, int64_t layer)
      : options_{.heads = config.num_attention_heads,
                 .layer = layer,
                 .dropout = config.attention_probs_dropout_prob,
                 .scale = 1.0 / std::sqrt(static_cast<double>(config.hidden_size /
                                                              config.num_attention_heads)),
                 .hides_padding_queries = false},
        query_(attn(scope) / "q", config.hidden_size, config.hidden_size),
        key_(attn(scope) / "k", config.hidden_size, config.hidden_size),
        value_(attn(scope) / "v", config.hidden_size, config.hidden_size),
        post_norm_(
            {attn(scope) / "o", scope / "attention" / "LayerNorm", scope / "intermediate" / "dense",
             scope / "output" / "dense", scope / "output" / "LayerNorm"},
            post_norm_options(config, layer)) {}

  nn::Value operator()(const nn::Value& x, const nn::DistanceRows& table, nn::Pass& p) const {
    const nn::Linear::SharedInput shared(x, {&value_, &key_, &query_}, p);
    nn::Projections all = {
        .value = value_(x, shared, p), .key = key_(x, shared, p), .query = query_(x, shared, p)};
    return post_norm_(nn::attend(std::move(all), {.key = {}, .query = {}, .bias = table.rows},
                                 table.distances, options_, p),
                      x, p);
  }

 private:
  static nn::Scope attn(const nn::Scope& layer) { return layer / "attention" / "attn"; }

  nn::DisentangledOptions options_;
  nn::Linear query_, key_, value_;
  nn::PostNorm post_norm_;
};

class MpnetModel final : public Backbone {
 public:
  MpnetModel(const nn::Scope& scope, const ModelConfig& config, bool pools)
      : embeddings_(scope / "embeddings", config, /*has_types=*/false),
        layers_(make_layers<MpnetLayer>(scope / "encoder" / "layer", config)),
        buckets_(config.encoder.relative_attention_num_buckets),
        bias_(scope / "encoder" / "relative_attention_bias", buckets_, config.num_attention_heads) {
    if (pools) pooler_.emplace(scope / "pooler" / "dense", config);
  }

  nn::Value operator()(const ModelInput& input, nn::Pass& p) override {
    const int64_t tokens = p.layout() ? p.layout()->longest : input.input_ids.size(1);
    const c10::Device device = input.input_ids.device();
    const nn::DistanceRows table = {
        .rows = bias_(at::arange(buckets_, input.input_ids.options()), p),
        .distances = distances(buckets_, tokens, device, p)};
    return nn::sequence(layers_, nn::to_precision(embeddings_(input, p), p), p, table);
  }
  [[nodiscard]] nn::Value pool(const nn::Value& hidden, nn::Pass& p) const override {
    return (*pooler_)(hidden, p);
  }
  [[nodiscard]] const Weight& word_embedding() const override {
    return embeddings_.word_embedding();
  }
  [[nodiscard]] std::optional<int64_t> last_layer() const override {
    return std::ssize(layers_) - 1;
  }

 private:
  RobertaEmbeddings embeddings_;
  std::vector<MpnetLayer> layers_;
  int64_t buckets_;
  nn::Embedding bias_;
  std::optional<Pooler> pooler_;
};

// Song et al. 2020: BERT's layer, and a bias of the scores for each distance, which all layers
// share.
class Mpnet final : public Architecture {
 public:
  [[nodiscard]] std::string model_type() const override { return "mpnet"; }
  [[nodiscard]] std::string class_prefix() const override { return "MPNet"; }
  [[nodiscard]] std::string backbone_name() const override { return "mpnet"; }
  [[nodiscard]] std::string lm_head_name() const override { return "lm_head"; }
  [[nodiscard]] bool has_next_sentence_head() const override { return false; }
  [[nodiscard]] bool has_decoder_fields() const override { return false; }
  [[nodiscard]] bool positions_follow_padding() const override { return true; }
  void set_defaults(ModelConfig& config) const override { config.vocab_size = 30527; }

  [[nodiscard]] ConfigFields fields(ModelConfig& c) const override {
    return with_fields(
        without_fields(Architecture::fields(c), {"type_vocab_size", "classifier_dropout"}),
        {{"relative_attention_num_buckets", &c.encoder.relative_attention_num_buckets, 4, 1024}});
  }

  void complete(ModelConfig& config, const Refuse& refuse) const override {
    Architecture::complete(config, refuse);
    // transformers numbers positions from 2 on whatever the padding is.
    if (config.pad_token_id != 1) {
      refuse("pad_token_id is " + std::to_string(config.pad_token_id) + ", and mpnet's is 1");
    }
    // Its buckets are those of 32, whatever the size of the table.
    if (config.encoder.relative_attention_num_buckets != 32) {
      refuse("relative_attention_num_buckets is " +
             std::to_string(config.encoder.relative_attention_num_buckets) +
             ", and only 32 is available");
    }
  }

  [[nodiscard]] std::unique_ptr<Backbone> make_backbone(const nn::Scope& scope,
                                                        const ModelConfig& config,
                                                        std::optional<Head> head) const override {
    const bool pools = head == Head::kMultipleChoice || head == Head::kEmbedding;
    return std::make_unique<MpnetModel>(scope, config, pools);
  }

  [[nodiscard]] std::unique_ptr<ModelHead> make_head(const nn::Scope& root,
                                                     const ModelConfig& config,
                                                     std::optional<Head> head) const override {
    if (!head) return std::make_unique<RobertaLmHead>(root / "lm_head", config);
    const int64_t outputs = count_outputs(config, *head);
    const double dropout = config.hidden_dropout_prob;
    const nn::Scope classifier = root / "classifier";
    switch (*head) {
      case Head::kPretraining:
        refuse_next_sentence_head(config);
      case Head::kSequenceClassification:
        return first_token_classifier(classifier, config, find_activation("tanh"));
      case Head::kMultipleChoice:
        return std::make_unique<PooledClassifier>(classifier, config, outputs, dropout);
      case Head::kTokenClassification:
        return std::make_unique<TokenClassifier>(classifier, config, outputs, dropout);
      case Head::kQuestionAnswering:
        return std::make_unique<TokenClassifier>(root / "qa_outputs", config, outputs, 0.0);
      case Head::kEmbedding:  // the bare model
      case Head::kDecision:
        break;
    }
    FT_CHECK(false, "a head without a class");
  }
};

}  // namespace

const Architecture& mpnet_architecture() {
  static const Mpnet kMpnet;
  return kMpnet;
}

}  // namespace finetune
