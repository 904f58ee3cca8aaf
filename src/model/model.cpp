// SPDX-License-Identifier: MIT
#include "finetune/model/model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/kernels/chunked_cross_entropy.h"
#include "finetune/kernels/normal.h"
#include "finetune/tensor/backward.h"
#include "model/architecture.h"
#include "model/attention.h"

namespace finetune {
namespace {

bool ends_with_norm(const std::string& name) {
  return name.find("LayerNorm.") != std::string::npos ||
         name.find("layer_norm.") != std::string::npos;
}

uint64_t hash_name(const std::string& name) {  // FNV-1a: part of what a seed means, so frozen here
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void initialize(ParameterStore& store, const ModelConfig& config, const Architecture& architecture,
                uint64_t seed) {
  const c10::NoGradGuard no_grad;
  // transformers reads 0 as "not set"
  const double deviation = config.initializer_range != 0.0 ? config.initializer_range : 0.02;
  for (Parameter& parameter : store.parameters()) {
    // Made on the CPU, so that every device and format begins with the same numbers.
    const Tensor values = at::zeros(parameter.weight.sizes());
    const bool is_weight = parameter.name.ends_with("weight");
    if (is_weight && ends_with_norm(parameter.name)) {
      values.fill_(1.0);
    } else if (is_weight) {
      fill_normal(values, deviation, seed, hash_name(parameter.name));
      if (architecture.has_padding_row(parameter.name)) values[config.pad_token_id].zero_();
    }
    store.assign(parameter, values);
  }
}

// What an encoder makes of [B, T]: [B, T, C], or with a layout [1, N, C]. All that heads take of it
// is float32.
struct Encoded {
  Tensor hidden;
  std::shared_ptr<const TokenLayout> layout;
  int64_t rows, length;  // B, T

  // [B, T, C], zero where padding was left out.
  [[nodiscard]] Tensor padded() const {
    if (!layout) return hidden.to(at::kFloat);
    const Tensor tokens = hidden[0].to(at::kFloat);
    return at::zeros({rows * length, tokens.size(1)}, tokens.options())
        .index_copy(0, layout->cells, tokens)
        .view({rows, length, tokens.size(1)});
  }
  // [N, C] at positions [N], b * T + t
  [[nodiscard]] Tensor tokens_at(const Tensor& positions) const {
    const Tensor tokens = layout ? at::searchsorted(layout->cells, positions) : positions;
    return hidden.flatten(0, 1).index_select(0, tokens).to(at::kFloat);
  }
  // [B, 1, C]
  [[nodiscard]] Tensor first_tokens() const {
    if (!layout) return hidden.slice(1, 0, 1).to(at::kFloat);
    return tokens_at(at::arange(rows, layout->cells.options()) * length).unsqueeze(1);
  }
};

// An encoder and a head as children of one module, in the order in which they are numbered.
class EncoderWithHead {
 public:
  EncoderWithHead(const ModelConfig& config, std::optional<Head> head, uint64_t seed,
                  c10::Device device, const ModelOptions& options)
      : architecture_(architecture_of(config)),
        config_(config),
        options_(options),
        root_(std::make_shared<nn::Module>()),
        encoder_(architecture_.make_encoder(config, head)),
        block_sparse_(block_sparse_options(config)),
        loss_spans_padding_(head == Head::kQuestionAnswering) {
    const NamedHead named = architecture_.make_head(config, head);
    head_ = named.module;
    if (architecture_.head_comes_first()) root_->register_module(named.name, head_);
    root_->register_module(architecture_.encoder_name(), encoder_);
    if (!architecture_.head_comes_first()) root_->register_module(named.name, head_);
    if (!device.is_cpu()) root_->to(device);
    for (const auto& item : root_->named_parameters()) {
      parameters_.push_back({item.key(), item.value()});
    }
    store_ = std::make_unique<ParameterStore>(parameters_, options_.weights, options_.gradients);
    if (options_.draw_weights) initialize(*store_, config_, architecture_, seed);
  }

  // Positions [N] where the head looks at these alone; undefined: at all.
  Tensor logits(const ModelInput& given, const Tensor& positions = {}) {
    const ModelInput input = head_->prepare(given);
    const ForwardContext context = make_context(input);
    const Encoded encoded = encode(input, context);
    const Tensor hidden = positions.defined() ? encoded.tokens_at(positions) : encoded.padded();
    return head_->forward({*encoder_, input, hidden, context});
  }

  Tensor loss_sum(const ModelInput& input, const Tensor& positions, const Tensor& labels,
                  const LmLossOptions& options) {
    const ForwardContext context = make_context(input);
    const Tensor hidden = encode(input, context).tokens_at(positions);
    return words_loss({*encoder_, input, hidden, context}, labels, options);
  }

  PretrainingModel::Logits pretraining_logits(const ModelInput& input, const Tensor& positions) {
    const ForwardContext context = make_context(input);
    const Encoded encoded = encode(input, context);
    PretrainingModel::Logits logits{.words = {},
                                    .next_sentence = next_sentence(input, encoded, context)};
    if (positions.defined()) {
      const Tensor rows = encoded.tokens_at(positions);
      logits.words = head_->forward({*encoder_, input, rows, context});
    }
    return logits;
  }

  PretrainingModel::Terms pretraining_terms(const ModelInput& input, const Tensor& positions,
                                            const Tensor& labels, const LmLossOptions& options) {
    const ForwardContext context = make_context(input);
    const Encoded encoded = encode(input, context);
    PretrainingModel::Terms terms{.words_loss = {},
                                  .next_sentence = next_sentence(input, encoded, context)};
    if (positions.defined()) {
      const Tensor rows = encoded.tokens_at(positions);
      terms.words_loss = words_loss({*encoder_, input, rows, context}, labels, options);
    }
    return terms;
  }

  [[nodiscard]] ParameterStore& store() const { return *store_; }

  [[nodiscard]] const NamedTensors& parameters() const { return parameters_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] std::string class_name(const std::string& head) const {
    return architecture_.class_prefix() + "For" + head;
  }

 private:
  // Summed cross entropy of a head over the vocabulary, from hidden states [N, C].
  Tensor words_loss(const HeadInput& in, const Tensor& labels, const LmLossOptions& options) {
    if (!options_.fused) {
      return at::cross_entropy_loss(head_->forward(in), labels, {}, at::Reduction::Sum, -100,
                                    options.label_smoothing_factor);
    }
    const auto head = std::dynamic_pointer_cast<LmHeadImpl>(head_);
    FT_CHECK(head != nullptr, "a masked LM without a head over the vocabulary");
    const LmDecoder last = head->decoder(*encoder_);
    const Tensor sum =
        chunked_cross_entropy(head->transform(in), last.weight, last.bias, labels, *store_,
                              {.label_smoothing_factor = options.label_smoothing_factor,
                               .gradient_scale = options.gradient_scale,
                               .rows_per_chunk = options_.head_rows_per_chunk,
                               .precision = in.context.precision()});
    // A tied weight is complete behind the embeddings' backward pass only.
    return attach_backward(sum, {sum}, [this, last](const Tensor& gradient) -> std::vector<Tensor> {
      store_->complete({last.bias, last.is_tied ? Tensor() : last.weight});
      return {gradient};
    });
  }

  // -> [B, 2]
  Tensor next_sentence(const ModelInput& input, const Encoded& encoded,
                       const ForwardContext& context) {
    const auto head = std::dynamic_pointer_cast<PretrainingHeadImpl>(head_);
    FT_CHECK(head != nullptr, "pretraining without its head");
    const Tensor first = encoded.first_tokens();
    return head->next_sentence({*encoder_, input, first, context});
  }

  [[nodiscard]] ForwardContext make_context(const ModelInput& input) const {
    ForwardContext context{.dropout = input.dropout,
                           .parameters = options_.fused ? store_.get() : nullptr,
                           .options = options_};
    if (input.attention_mask.defined()) {
      context.mask = input.attention_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, T]
    }
    return context;
  }

  Encoded encode(const ModelInput& input, const ForwardContext& context) {
    ForwardContext of_encoder = context;
    if (leaves_out_padding(input)) {
      of_encoder.layout = input.layout;
      of_encoder.mask = input.layout->mask;
    }
    return {.hidden = encoder_->forward(input, of_encoder),
            .layout = of_encoder.layout,
            .rows = input.input_ids.size(0),
            .length = input.input_ids.size(1)};
  }

  [[nodiscard]] bool leaves_out_padding(const ModelInput& input) const {
    if (!input.layout || !options_.fused || loss_spans_padding_) return false;
    return !block_sparse_ || input.input_ids.size(1) <= block_sparse_->longest_full();
  }

  const Architecture& architecture_;
  ModelConfig config_;
  ModelOptions options_;
  std::shared_ptr<nn::Module> root_;
  std::shared_ptr<EncoderModelImpl> encoder_;
  std::optional<BlockSparseOptions> block_sparse_;
  bool loss_spans_padding_;
  std::shared_ptr<HeadImpl> head_;
  NamedTensors parameters_;
  std::unique_ptr<ParameterStore> store_;
};

class EncoderMaskedLm final : public MaskedLmModel {
 public:
  EncoderMaskedLm(const ModelConfig& config, uint64_t seed, c10::Device device,
                  const ModelOptions& options)
      : body_(config, std::nullopt, seed, device, options) {}

  Tensor logits(const ModelInput& input, const Tensor& positions) override {
    return body_.logits(input, positions);
  }
  Tensor loss_sum(const ModelInput& input, const Tensor& positions, const Tensor& labels,
                  const LmLossOptions& options) override {
    return body_.loss_sum(input, positions, labels, options);
  }
  [[nodiscard]] const NamedTensors& parameters() const override { return body_.parameters(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override { return body_.class_name("MaskedLM"); }

 private:
  EncoderWithHead body_;
};

class EncoderPretrainingModel final : public PretrainingModel {
 public:
  EncoderPretrainingModel(const ModelConfig& config, uint64_t seed, c10::Device device,
                          const ModelOptions& options)
      : body_(config, Head::kPretraining, seed, device, options) {}

  Logits logits(const ModelInput& input, const Tensor& positions) override {
    return body_.pretraining_logits(input, positions);
  }
  Terms terms(const ModelInput& input, const Tensor& positions, const Tensor& labels,
              const LmLossOptions& options) override {
    return body_.pretraining_terms(input, positions, labels, options);
  }
  [[nodiscard]] const NamedTensors& parameters() const override { return body_.parameters(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override {
    return body_.class_name("PreTraining");
  }

 private:
  EncoderWithHead body_;
};

class EncoderHeadModel final : public HeadModel {
 public:
  EncoderHeadModel(Head head, const ModelConfig& config, uint64_t seed, c10::Device device,
                   const ModelOptions& options)
      : head_(head), body_(config, head, seed, device, options) {}

  Tensor logits(const ModelInput& input) override { return body_.logits(input); }
  [[nodiscard]] const NamedTensors& parameters() const override { return body_.parameters(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override {
    switch (head_) {
      case Head::kPretraining:
        break;
      case Head::kSequenceClassification:
        return body_.class_name("SequenceClassification");
      case Head::kMultipleChoice:
        return body_.class_name("MultipleChoice");
      case Head::kTokenClassification:
        return body_.class_name("TokenClassification");
      case Head::kQuestionAnswering:
        return body_.class_name("QuestionAnswering");
    }
    FT_CHECK(false, "a head without a class");
  }

 private:
  Head head_;
  EncoderWithHead body_;
};

}  // namespace

NamedTensors Model::trained_parameters() const {
  NamedTensors trained;
  for (const size_t place : store().trained()) trained.push_back(parameters()[place]);
  return trained;
}

std::unique_ptr<MaskedLmModel> make_masked_lm(const ModelConfig& config, uint64_t seed,
                                              c10::Device device, const ModelOptions& options) {
  return std::make_unique<EncoderMaskedLm>(config, seed, device, options);
}

std::unique_ptr<PretrainingModel> make_pretraining_model(const ModelConfig& config, uint64_t seed,
                                                         c10::Device device,
                                                         const ModelOptions& options) {
  return std::make_unique<EncoderPretrainingModel>(config, seed, device, options);
}

bool has_next_sentence_head(const ModelConfig& config) {
  return architecture_of(config).has_next_sentence_head();
}

std::unique_ptr<HeadModel> make_head_model(Head head, const ModelConfig& config, uint64_t seed,
                                           c10::Device device, const ModelOptions& options) {
  FT_CHECK(head != Head::kPretraining, "a pretraining model has two outputs");
  ModelConfig own = config;
  if (head == Head::kQuestionAnswering && own.id2label.size() != 2) {
    own.id2label = ModelConfig{}.id2label;
  }
  return std::make_unique<EncoderHeadModel>(head, own, seed, device, options);
}

bool has_weight_decay(const std::string& parameter_name) {
  // transformers excludes LayerNorm modules and every name that holds "bias" or a norm's name.
  return parameter_name.find("bias") == std::string::npos && !ends_with_norm(parameter_name);
}

}  // namespace finetune
