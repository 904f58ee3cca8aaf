// SPDX-License-Identifier: MIT
#include "finetune/model/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/kernels/chunked_cross_entropy.h"
#include "finetune/kernels/normal.h"
#include "finetune/model/model_folder.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/tensor/backward.h"
#include "finetune/tensor/meta_memory.h"
#include "model/architecture.h"

namespace finetune {
namespace {

// Whether transformers treats the parameter as a norm's: encoders by class, decoders by name.
bool is_of_norm(const std::string& name) {
  for (const char* part : {"LayerNorm.", "layer_norm.", "layernorm", "_norm.", ".norm.", ".ln_"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

// FNV-1a: decides the weights of a seed, so never change it
uint64_t hash_name(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// Fills with a truncated normal distribution: values beyond `most` are drawn again.
void fill_truncated_normal(const Tensor& values, double deviation, double most, uint64_t seed,
                           const std::string& name) {
  fill_normal(values, deviation, seed, hash_name(name));
  const Tensor again = at::empty_like(values);
  for (int64_t attempt = 1; values.abs().gt(most).any().item<bool>(); ++attempt) {
    fill_normal(again, deviation, seed, hash_name(name + "#" + std::to_string(attempt)));
    values.copy_(at::where(values.abs().gt(most), again, values));
  }
}

void draw(Parameter& parameter, ParameterStore& store, const ModelConfig& config, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  const Architecture& architecture = architecture_of(config);
  // transformers reads 0 as "not set".
  const double deviation = config.initializer_range != 0.0 ? config.initializer_range : 0.02;
  // Drawn on the CPU, so that every device and format starts from the same numbers.
  const Tensor values = at::zeros(parameter.weight.sizes());
  const bool is_weight = parameter.name.ends_with("weight");
  if (is_weight && is_of_norm(parameter.name)) {
    values.fill_(architecture.fresh_norm());
  } else if (is_weight) {
    const double own = deviation * architecture.fresh_share(config, parameter.name);
    if (const auto cutoff = architecture.fresh_cutoff(config)) {
      fill_truncated_normal(values, own, *cutoff * own, seed, parameter.name);
    } else {
      fill_normal(values, own, seed, hash_name(parameter.name));
    }
    const auto padding = architecture.padding_row(config, parameter.name);
    if (padding) values[*padding].zero_();
  }
  store.assign(parameter, values);
}

void initialize(ParameterStore& store, const ModelConfig& config, uint64_t seed) {
  for (Parameter& parameter : store.parameters()) draw(parameter, store, config, seed);
}

// The encoder's output for [B, T]: [B, T, C], or [1, N, C] with a layout. Heads read it in float32.
struct Encoded {
  Tensor hidden;
  std::shared_ptr<const TokenLayout> layout;
  int64_t rows, length;  // B, T

  // Returns [B, T, C], zero at padding that was not computed.
  [[nodiscard]] Tensor padded() const {
    if (!layout) return hidden.to(at::kFloat);
    const Tensor tokens = hidden[0].to(at::kFloat);
    return at::zeros({rows * length, tokens.size(1)}, tokens.options())
        .index_copy(0, layout->cells, tokens)
        .view({rows, length, tokens.size(1)});
  }
  // Returns [N, C] at positions [N], each b * T + t.
  [[nodiscard]] Tensor tokens_at(const Tensor& positions) const {
    const Tensor tokens = layout ? at::searchsorted(layout->cells, positions) : positions;
    return hidden.flatten(0, 1).index_select(0, tokens).to(at::kFloat);
  }
  // Returns [B, 1, C].
  [[nodiscard]] Tensor first_tokens() const {
    if (!layout) return hidden.slice(1, 0, 1).to(at::kFloat);
    return tokens_at(at::arange(rows, layout->cells.options()) * length).unsqueeze(1);
  }
};

struct Parts {
  std::unique_ptr<Backbone> backbone;
  std::unique_ptr<ModelHead> head;
};

// The encoder and the head, created in the order in which transformers numbers their parameters.
Parts make_parts(const Architecture& architecture, const ModelConfig& config,
                 std::optional<Head> head, const nn::Scope& root) {
  Parts parts;
  if (architecture.head_comes_first()) parts.head = architecture.make_head(root, config, head);
  parts.backbone = architecture.make_backbone(root / architecture.backbone_name(), config, head);
  if (!parts.head) parts.head = architecture.make_head(root, config, head);
  return parts;
}

// A head for question answering always has two labels.
ModelConfig config_for(std::optional<Head> head, const ModelConfig& config) {
  ModelConfig own = config;
  if (head == Head::kQuestionAnswering && own.id2label.size() != 2) {
    own.id2label = ModelConfig{}.id2label;
  }
  return own;
}

class EncoderWithHead {
 public:
  EncoderWithHead(const ModelConfig& config, std::optional<Head> head, uint64_t seed,
                  c10::Device device, const ModelOptions& options)
      : architecture_(architecture_of(config)),
        config_(config),
        options_(options),
        parts_(make_parts(architecture_, config, head, {parameters_, c10::Device(c10::kMeta)})),
        block_sparse_(block_sparse_options(config)),
        loss_spans_padding_(head == Head::kQuestionAnswering) {
    store_ =
        std::make_unique<ParameterStore>(parameters_, options_.weights, options_.gradients, device);
    if (options_.draw_weights) initialize(*store_, config_, seed);
  }

  // `positions` [N]: the only positions that the head reads; undefined: all.
  Tensor logits(const ModelInput& given, const Tensor& positions = {}) {
    const ModelInput input = parts_.head->prepare(given);
    const Encoded encoded = encode(input);
    return head_logits(input,
                       positions.defined() ? encoded.tokens_at(positions) : encoded.padded());
  }

  Tensor loss_sum(const ModelInput& input, const Tensor& positions, const Tensor& labels,
                  const LmLossOptions& options) {
    return words_loss(input, encode(input).tokens_at(positions), labels, options);
  }

  LanguageModel::Scores score(const ModelInput& input, const Tensor& positions,
                              const Tensor& labels, double label_smoothing_factor) {
    const Tensor hidden = encode(input).tokens_at(positions);
    const int64_t rows = hidden.size(0);
    LanguageModel::Scores scores{.best = at::empty_like(labels)};
    for (int64_t first = 0; first < rows; first += options_.head_rows_per_chunk) {
      const int64_t count = std::min(options_.head_rows_per_chunk, rows - first);
      const Tensor logits = head_logits(input, hidden.narrow(0, first, count));
      scores.loss_sum += at::cross_entropy_loss(logits, labels.narrow(0, first, count), {},
                                                at::Reduction::Sum, -100, label_smoothing_factor)
                             .item<double>();
      scores.best.narrow(0, first, count).copy_(logits.argmax(-1));
    }
    return scores;
  }

  PretrainingModel::Logits pretraining_logits(const ModelInput& input, const Tensor& positions) {
    const Encoded encoded = encode(input);
    PretrainingModel::Logits logits{.words = {}, .next_sentence = next_sentence(input, encoded)};
    if (positions.defined()) logits.words = head_logits(input, encoded.tokens_at(positions));
    return logits;
  }

  PretrainingModel::Terms pretraining_terms(const ModelInput& input, const Tensor& positions,
                                            const Tensor& labels, const LmLossOptions& options) {
    const Encoded encoded = encode(input);
    PretrainingModel::Terms terms{.words_loss = {}, .next_sentence = next_sentence(input, encoded)};
    if (positions.defined()) {
      terms.words_loss = words_loss(input, encoded.tokens_at(positions), labels, options);
    }
    return terms;
  }

  [[nodiscard]] ParameterStore& store() const { return *store_; }

  [[nodiscard]] const NamedTensors& parameters() const { return parameters_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] std::string class_name(const std::string& head) const {
    return architecture_.class_prefix() + "For" + head;
  }
  [[nodiscard]] std::string lm_class() const { return architecture_.lm_class(); }

 private:
  template <typename HeadType>
  const HeadType& head_as() const {
    const auto* head = dynamic_cast<const HeadType*>(parts_.head.get());
    FT_CHECK(head != nullptr, "a model without the head of its task");
    return *head;
  }

  // Runs a function (HeadInput, Pass) -> Value on hidden states in float32.
  template <typename Function>
  Tensor in_head(const ModelInput& input, const Tensor& hidden, const Function& function) {
    return nn::run(make_pass(input, Precision::kFloat32), {hidden},
                   [&](const std::vector<nn::Value>& values, nn::Pass& p) {
                     return function({*parts_.backbone, input, values.front()}, p);
                   });
  }

  Tensor head_logits(const ModelInput& input, const Tensor& hidden) {
    return in_head(input, hidden,
                   [&](const HeadInput& in, nn::Pass& p) { return (*parts_.head)(in, p); });
  }

  // Returns the summed cross entropy of a head over the vocabulary, from hidden states [N, C].
  Tensor words_loss(const ModelInput& input, const Tensor& hidden, const Tensor& labels,
                    const LmLossOptions& options) {
    if (!options_.fused) {
      return at::cross_entropy_loss(head_logits(input, hidden), labels, {}, at::Reduction::Sum,
                                    -100, options.label_smoothing_factor);
    }
    const auto& head = head_as<LmHead>();
    const LmDecoder last = head.decoder(*parts_.backbone);
    const Tensor x = in_head(
        input, hidden, [&](const HeadInput& in, nn::Pass& p) { return head.transform(in, p); });
    const Tensor sum = chunked_cross_entropy(
        x, last.weight, last.bias, labels, *store_,
        {.label_smoothing_factor = options.label_smoothing_factor,
         .gradient_scale = options.gradient_scale,
         .rows_per_chunk = loss_rows_per_chunk(config_, options_.head_rows_per_chunk),
         .precision = precision_of(input),
         .softcap = last.softcap});
    // A tied weight is complete after the embeddings' backward pass only.
    return attach_backward(sum, {sum}, [this, last](const Tensor& gradient) -> std::vector<Tensor> {
      store_->complete({last.bias, last.is_tied ? Tensor() : last.weight});
      return {gradient};
    });
  }

  // Returns [B, 2].
  Tensor next_sentence(const ModelInput& input, const Encoded& encoded) {
    const auto& head = head_as<PretrainingHead>();
    return in_head(input, encoded.first_tokens(),
                   [&](const HeadInput& in, nn::Pass& p) { return head.next_sentence(in, p); });
  }

  // Evaluation may use another precision than training.
  [[nodiscard]] Precision precision_of(const ModelInput& input) const {
    return input.dropout ? options_.precision : options_.evaluation_precision;
  }

  [[nodiscard]] std::shared_ptr<nn::Pass> make_pass(
      const ModelInput& input, Precision precision,
      const std::shared_ptr<const TokenLayout>& layout = {}) const {
    nn::Mode mode = nn::Mode::kPlain;
    if (options_.fused) mode = c10::GradMode::is_enabled() ? nn::Mode::kTrain : nn::Mode::kEval;
    nn::PassOptions options{.parameters = options_.fused ? store_.get() : nullptr,
                            .inputs = {.layout = layout, .dropout = input.dropout},
                            .precision = precision,
                            .selective = options_.selective,
                            .checkpoint_every_n_layers = options_.checkpoint_every_n_layers,
                            .offload = options_.offload};
    options.cache = input.cache;
    options.rotations = parts_.backbone->rotations(input, layout.get());
    if (layout) {
      options.inputs.mask = layout->mask;
    } else if (input.attention_mask.defined()) {
      options.inputs.mask = input.attention_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, T]
    }
    return std::make_shared<nn::Pass>(mode, std::move(options));
  }

  Encoded encode(const ModelInput& input) {
    const auto layout = leaves_out_padding(input) ? input.layout : nullptr;
    const auto pass = make_pass(input, precision_of(input), layout);
    FT_CHECK(input.cache == nullptr || (architecture_.is_causal() && input.input_ids.size(0) == 1),
             "a cache of keys and values is one text's of a causal model");
    Encoded encoded = {.hidden = nn::run(pass, {},
                                         [&](const std::vector<nn::Value>& /*none*/, nn::Pass& p) {
                                           return (*parts_.backbone)(input, p);
                                         }),
                       .layout = layout,
                       .rows = input.input_ids.size(0),
                       .length = input.input_ids.size(1)};
    if (input.cache != nullptr) input.cache->length += encoded.length;
    return encoded;
  }

  [[nodiscard]] bool leaves_out_padding(const ModelInput& input) const {
    if (!input.layout || !options_.fused || loss_spans_padding_) return false;
    return !block_sparse_ || input.input_ids.size(1) <= block_sparse_->longest_full();
  }

  const Architecture& architecture_;
  ModelConfig config_;
  ModelOptions options_;
  NamedTensors parameters_;
  Parts parts_;
  std::optional<BlockSparseOptions> block_sparse_;
  bool loss_spans_padding_;
  std::unique_ptr<ParameterStore> store_;
};

class BackboneLanguageModel final : public LanguageModel {
 public:
  BackboneLanguageModel(const ModelConfig& config, uint64_t seed, c10::Device device,
                        const ModelOptions& options)
      : body_(config, std::nullopt, seed, device, options) {}

  Tensor logits(const ModelInput& input, const Tensor& positions) override {
    return body_.logits(input, positions);
  }
  Tensor loss_sum(const ModelInput& input, const Tensor& positions, const Tensor& labels,
                  const LmLossOptions& options) override {
    return body_.loss_sum(input, positions, labels, options);
  }
  Scores score(const ModelInput& input, const Tensor& positions, const Tensor& labels,
               double label_smoothing_factor) override {
    return body_.score(input, positions, labels, label_smoothing_factor);
  }
  [[nodiscard]] const NamedTensors& parameters() const override { return body_.parameters(); }
  [[nodiscard]] ParameterStore& store() override { return body_.store(); }
  [[nodiscard]] const ParameterStore& store() const override { return body_.store(); }
  [[nodiscard]] const ModelConfig& config() const override { return body_.config(); }
  [[nodiscard]] std::string architecture() const override { return body_.lm_class(); }

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

std::unique_ptr<LanguageModel> make_language_model(const ModelConfig& config, uint64_t seed,
                                                   c10::Device device,
                                                   const ModelOptions& options) {
  return std::make_unique<BackboneLanguageModel>(config, seed, device, options);
}

std::unique_ptr<PretrainingModel> make_pretraining_model(const ModelConfig& config, uint64_t seed,
                                                         c10::Device device,
                                                         const ModelOptions& options) {
  return std::make_unique<EncoderPretrainingModel>(config, seed, device, options);
}

bool is_causal(const ModelConfig& config) { return architecture_of(config).is_causal(); }

int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk) {
  constexpr int64_t kMostLogits = int64_t{1} << 24;  // of 4 bytes
  constexpr int64_t kUsualRows = 128;                // the factor is that of any number of rows
  if (!is_causal(config)) return head_rows_per_chunk;
  const int64_t factor = kMostLogits / (kUsualRows * config.vocab_size);
  return head_rows_per_chunk * std::clamp<int64_t>(factor, 1, 4);
}

bool has_next_sentence_head(const ModelConfig& config) {
  return architecture_of(config).has_next_sentence_head();
}

std::unique_ptr<HeadModel> make_head_model(Head head, const ModelConfig& config, uint64_t seed,
                                           c10::Device device, const ModelOptions& options) {
  FT_CHECK(head != Head::kPretraining, "a pretraining model has two outputs");
  return std::make_unique<EncoderHeadModel>(head, config_for(head, config), seed, device, options);
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config, std::optional<Head> head) {
  NamedTensors parameters;
  const Parts parts = make_parts(architecture_of(config), config_for(head, config), head,
                                 {parameters, c10::Device(c10::kMeta)});
  std::vector<ParameterShape> shapes;
  for (const NamedTensor& parameter : parameters) {
    shapes.push_back({parameter.name, parameter.tensor.sizes().vec()});
  }
  return shapes;
}

namespace {

struct DryRun {
  int64_t kept = 0;        // bytes
  int64_t parameters = 0;  // values
};

// Returns the same configuration with another number of layers; lists with an entry per layer get
// the new length.
ModelConfig with_layers(ModelConfig config, int64_t layers) {
  config.num_hidden_layers = layers;
  const auto resize = [&](auto& of_layers) {
    if (of_layers.empty()) return;
    const auto last = of_layers.back();
    of_layers.resize(static_cast<size_t>(layers), last);
  };
  resize(config.decoder.layer_types);
  resize(config.decoder.no_rope_layers);
  return config;
}

DryRun run_dry(const ModelConfig& whole, std::optional<Head> head, int64_t length,
               const ModelOptions& options, int64_t layers, int64_t rows = 1) {
  const c10::NoGradGuard no_grad;
  const c10::Device meta(c10::kMeta);
  ModelConfig config = with_layers(whole, layers);
  config.attention_type = "original_full";
  NamedTensors parameters;
  const Parts parts =
      make_parts(architecture_of(config), config_for(head, config), head, {parameters, meta});
  DryRun result;
  for (const NamedTensor& parameter : parameters) result.parameters += parameter.tensor.numel();
  const ModelInput input{
      .input_ids = at::empty({rows, length}, at::TensorOptions(meta).dtype(at::kLong)),
      .attention_mask = {},
      .dropout = DropoutStream{}};
  const MetaMemory memory;
  nn::Pass pass(nn::Mode::kTrain,
                {.inputs = {.dropout = input.dropout},
                 .rotations = parts.backbone->rotations(input, /*layout=*/nullptr),
                 .precision = options.precision,
                 .selective = options.selective});
  nn::Value y = (*parts.backbone)(input, pass);
  y = {};
  result.kept = memory.now();
  return result;
}

}  // namespace

KeptBytes kept_for_backward(const ModelConfig& config, std::optional<Head> head, int64_t length,
                            const ModelOptions& options) {
  const DryRun one = run_dry(config, head, length, options, 1);
  const DryRun two = run_dry(config, head, length, options, 2);
  KeptBytes kept = {.embeddings = 2 * one.kept - two.kept,
                    .layer = two.kept - one.kept,
                    .layer_parameters = two.parameters - one.parameters};
  if (architecture_of(config).keeps_tables()) {
    const int64_t one_of_two_rows = run_dry(config, head, length, options, 1, 2).kept;
    const int64_t two_of_two_rows = run_dry(config, head, length, options, 2, 2).kept;
    kept.shared_embeddings = 2 * kept.embeddings - (2 * one_of_two_rows - two_of_two_rows);
    kept.shared_layer = 2 * kept.layer - (two_of_two_rows - one_of_two_rows);
    kept.embeddings -= kept.shared_embeddings;
    kept.layer -= kept.shared_layer;
  }
  return kept;
}

void draw_weights(Model& model, uint64_t seed, const std::vector<std::string>& names) {
  for (Parameter& parameter : model.store().parameters()) {
    if (std::ranges::find(names, parameter.name) == names.end()) continue;
    draw(parameter, model.store(), model.config(), seed);
  }
}

int64_t ParameterShape::count() const {
  int64_t values = 1;
  for (const int64_t size : sizes) values *= size;
  return values;
}

bool has_weight_decay(const std::string& parameter_name) {
  // transformers excludes LayerNorm modules and all names that contain "bias" or a norm's name.
  return parameter_name.find("bias") == std::string::npos && !is_of_norm(parameter_name);
}

}  // namespace finetune
