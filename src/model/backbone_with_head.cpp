// SPDX-License-Identifier: MIT
#include "model/backbone_with_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "finetune/base/error.h"
#include "finetune/kernels/dry_device.h"
#include "finetune/model/adapter.h"
#include "finetune/model/frozen.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/nn/chunked_cross_entropy.h"
#include "finetune/tensor/backward.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/meta_memory.h"
#include "model/adapter_files.h"
#include "model/laya.h"

namespace finetune {

namespace {

// Which parameters train in addition to an adapter's own, as the configuration says.
class TrainedWhole {
 public:
  TrainedWhole(const ModelConfig& config, const Weights& weights)
      : config_(config), lora_(*config.lora), adapted_(adapted_modules(weights)) {
    for (const auto& [own, other] : tied_names(config)) tied_[own] = other;
  }

  [[nodiscard]] bool has(const Weight& weight) const {
    const std::string module = weight.name().substr(0, weight.name().rfind('.'));
    return nn::trains_whole(lora_, weight.name(), adapted_.contains(module)) ||
           is_saved(weight, lora_.modules_to_save);
  }

  // Throws if a module that is to be trained whole is not there, or shares its weight with another.
  void check(std::optional<Head> head, const Weights& weights) const {
    const std::vector<std::string> outputs = output_modules(config_, head);
    for (const std::string& module : lora_.modules_to_save) {
      refuse_other_names(module, weights);
      const auto found = std::ranges::find_if(
          weights, [&](const Weight& weight) { return is_saved(weight, {module}); });
      if (found == weights.end()) {
        // PEFT lists the names of the output layers of all families.
        if (std::ranges::find(outputs, module) != outputs.end()) continue;
        throw nn::LoraError("lora_modules_to_save", "the model has no module '" + module + "'");
      }
      if (tied_.contains(found->name()) && !lora_.ensure_weight_tying) {
        throw nn::LoraError("lora_modules_to_save",
                            "'" + module + "': " + found->name() + " and " +
                                tied_.at(found->name()) +
                                " are one weight; set lora_ensure_weight_tying: true to train it, "
                                "or leave it out");
      }
    }
    if (lora_.ensure_weight_tying) check_embeddings();
  }

 private:
  [[nodiscard]] bool is_saved(const Weight& weight, const std::vector<std::string>& modules) const {
    const auto tied = tied_.find(weight.name());
    return nn::is_saved_whole(weight.name(), modules) ||
           (tied != tied_.end() && nn::is_saved_whole(tied->second, modules));
  }
  // PEFT would find no such tensor, or pass over it, and compute what the base does.
  static void refuse_other_names(const std::string& module, const Weights& weights) {
    for (const Weight& weight : weights) {
      const std::string theirs = name_in_transformers(weight.name());
      const bool is_meant =
          nn::is_saved_whole(weight.name(), {module}) || nn::is_saved_whole(theirs, {module});
      if (theirs == weight.name() || !is_meant) continue;
      throw nn::LoraError("lora_modules_to_save",
                          "'" + module + "' means " + weight.name() +
                              ", which files call otherwise than transformers' modules, so that "
                              "this is not available for its family; train the whole model");
    }
  }
  // With this setting PEFT also gives the output layer the adapter of an embedding that it is tied
  // to; the output layer has no adapter here.
  void check_embeddings() const {
    for (const auto& [own, other] : tied_) {
      const std::string module = own.substr(0, own.rfind('.'));
      if (!adapted_.contains(module)) continue;
      throw nn::LoraError("lora_ensure_weight_tying",
                          "the adapter of '" + module + "' is not available for " + other +
                              ", which is the same weight; leave lora_ensure_weight_tying out, and "
                              "the output layer uses the base's weight");
    }
  }

  const ModelConfig& config_;
  const nn::LoraConfig& lora_;
  std::set<std::string> adapted_;
  std::map<std::string, std::string> tied_;  // both are one weight: own name, other name
};

ModelParts assemble_parts(const ModelConfig& config, std::optional<Head> head) {
  const Architecture& architecture = architecture_of(config);
  std::optional<nn::LoraTargets> lora;
  if (config.lora) lora.emplace(*config.lora);
  ModelParts parts;
  const nn::Scope root(parts.weights, lora ? &*lora : nullptr);
  const bool embeds = head == Head::kEmbedding;
  const bool decides = head == Head::kDecision;
  const bool has_laya = decides && config.laya.has_value();
  if (decides && !has_laya && architecture.backbone_name() != "model") {
    throw Error(ErrorKind::kConfig, "model_type '" + config.model_type +
                                        "' has no decision head here; take a modernbert, an "
                                        "eurobert or a decoder whose tensors begin with 'model.'");
  }
  if (has_laya) check_laya(config);
  // transformers' bare model has no child that is called as the backbone.
  const nn::Scope backbone =
      embeds ? root : root / (has_laya ? kLayaEncoder : architecture.backbone_name());
  const auto make_head = [&] {
    if (!embeds && !decides) {
      parts.head = architecture.make_head(root, config, head);
      return;
    }
    if (has_laya) {
      parts.head = std::make_unique<LayaHead>(root, config);
      return;
    }
    std::optional<DecoderNorm> norm = architecture.last_norm(backbone, config);
    if (embeds) {
      parts.head = std::make_unique<EmbeddingHead>(std::move(norm), root, config);
    } else {
      parts.head = std::make_unique<JevHead>(std::move(norm), root / "proj", config);
    }
  };
  if (architecture.head_comes_first() && !embeds && !decides) make_head();
  // The class of a decision holds the bare model.
  parts.backbone = architecture.make_backbone(backbone, config, decides ? Head::kEmbedding : head);
  if (has_laya) {
    parts.backbone = std::make_unique<LayaBackbone>(std::move(parts.backbone), root, config);
  }
  if (!parts.head) make_head();
  std::optional<TrainedWhole> whole;
  if (lora) {
    lora->check();
    whole.emplace(config, parts.weights).check(head, parts.weights);
  }
  for (const Weight& weight : parts.weights) {
    parts.is_trained.push_back(!lora || weight.role() == ParameterRole::kAdapter ||
                               whole->has(weight) || !module_folder(weight.name()).empty());
  }
  return parts;
}

}  // namespace

ModelParts make_parts(const ModelConfig& config, std::optional<Head> head) {
  try {
    return assemble_parts(config, head);
  } catch (const nn::LoraError& error) {
    if (config.lora->file.empty()) throw;  // a key of the configuration is to blame
    throw Error(ErrorKind::kData,
                "'" + config.lora->file + "' does not fit its base: " + error.what());
  }
}

std::vector<ParameterFormat> parameter_formats(const ModelParts& parts, const ModelConfig& config,
                                               const ModelOptions& options) {
  const FrozenParameters frozen(options.freeze);
  std::vector<ParameterFormat> formats;
  for (const Weight& weight : parts.weights) {
    ParameterFormat format{.weight = options.weights, .gradient = options.gradients};
    format.trainable = parts.is_trained[weight.id()] && !frozen.has(weight.name()) &&
                       weight.role() != ParameterRole::kConstant;
    if (config.lora && !parts.is_trained[weight.id()]) {
      format.weight = options.base.of(weight.name(), weight.role());
      format.home = WeightHome::kBase;
    }
    if (weight.role() == ParameterRole::kConstant) format.weight = WeightFormat::kFloat32;
    const bool is_adapter = config.lora && parts.is_trained[weight.id()];
    const bool is_divided = format.trainable || options.sharding.divides_frozen;
    if (is_divided && !is_adapter && weight.role() != ParameterRole::kConstant &&
        format.weight != WeightFormat::kMxfp4 && weight.numel() > kDivisionUnit) {
      format.division = options.sharding.division;
    }
    formats.push_back(format);
  }
  return formats;
}

ModelConfig config_for(std::optional<Head> head, const ModelConfig& config) {
  ModelConfig own = config;
  if (head == Head::kQuestionAnswering && own.id2label.size() != 2) {
    own.id2label = ModelConfig{}.id2label;
  }
  return own;
}

Tensor Encoded::padded() const {
  FT_CHECK(!read.defined(), "all tokens are read");
  if (!layout) return hidden.to(at::kFloat);
  const Tensor tokens = hidden[0].to(at::kFloat);
  return at::zeros({rows * length, tokens.size(1)}, tokens.options())
      .index_copy(0, layout->cells, tokens)
      .view({rows, length, tokens.size(1)});
}

Tensor Encoded::tokens_at(const Tensor& positions) const {
  const MemoryUseScope use(MemoryUse::kHead);
  if (read.defined() && positions.is_same(read)) return hidden.flatten(0, 1).to(at::kFloat);
  const bool is_dry = positions.is_meta();
  const Tensor tokens = is_dry           ? positions
                        : read.defined() ? at::searchsorted(read, positions)
                        : layout         ? at::searchsorted(layout->cells, positions)
                                         : positions;
  return hidden.flatten(0, 1).index_select(0, tokens).to(at::kFloat);
}

Tensor Encoded::first_tokens() const {
  if (!layout && !read.defined()) return hidden.slice(1, 0, 1).to(at::kFloat);
  const Tensor& like = read.defined() ? read : layout->cells;
  return tokens_at(at::arange(rows, like.options()) * length).unsqueeze(1);
}

BackboneWithHead::BackboneWithHead(const ModelConfig& config, std::optional<Head> head,
                                   uint64_t seed, c10::Device device, const ModelOptions& options)
    : architecture_(architecture_of(config)),
      head_(head),
      config_(config),
      options_(options),
      parts_(make_parts(config, head)),
      block_sparse_(block_sparse_options(config)),
      loss_spans_padding_(head == Head::kQuestionAnswering),
      store_(std::make_unique<ParameterStore>(
          parts_.weights, parameter_formats(parts_, config_, options_), device)) {
  if (options_.draw_weights) draw_weights(*store_, config_, seed);
}

std::string BackboneWithHead::architecture() const {
  if (!head_) return architecture_.lm_class();
  if (head_ == Head::kEmbedding) return architecture_.class_prefix() + "Model";
  if (head_ == Head::kDecision) return config_.laya ? "DecisionModel" : "JevForDecision";
  constexpr std::array kHeads = {"PreTraining", "SequenceClassification", "MultipleChoice",
                                 "TokenClassification", "QuestionAnswering"};  // as in Head
  return architecture_.class_prefix() + "For" + kHeads.at(static_cast<size_t>(*head_));
}

Tensor BackboneWithHead::logits(const ModelInput& given, const Tensor& positions) {
  ModelInput input = parts_.head->prepare(given);
  if (!input.read_positions.defined()) {
    // Those at the positions, or one token of each row.
    input.read_positions = positions.defined() ? positions : parts_.head->read_positions(input);
  }
  const Encoded encoded = encode(input);
  if (positions.defined()) return head_logits(input, encoded.tokens_at(positions), {});
  if (!encoded.read.defined()) return head_logits(input, encoded.padded(), {});
  return head_logits(input, encoded.tokens_at(input.read_positions).unsqueeze(1), {});
}

template <typename HeadType>
const HeadType& BackboneWithHead::head_as() const {
  const auto* head = dynamic_cast<const HeadType*>(parts_.head.get());
  FT_CHECK(head != nullptr, "a model without the head of its task");
  return *head;
}

template <typename Function>
Tensor BackboneWithHead::in_head(const ModelInput& input, const Tensor& hidden,
                                 const Function& function, const Tensor& positions) {
  const MemoryUseScope use(MemoryUse::kHead);
  const auto layout = target_layout(input, positions);
  const Tensor result = nn::run(make_pass(input, Precision::kFloat32, layout),
                                {layout ? hidden.unsqueeze(0) : hidden},
                                [&](const std::vector<nn::Value>& values, nn::Pass& p) {
                                  return function({*parts_.backbone, input, values.front()}, p);
                                });
  return layout ? result.squeeze(0) : result;
}

namespace {

// The layout of the tokens at `positions` [N], each b * length + t, for dropout: by sample and
// position in it, so that it does not depend on how a batch is split.
std::shared_ptr<TokenLayout> layout_of_positions(const Tensor& positions, int64_t length) {
  auto layout = std::make_shared<TokenLayout>();
  layout->offsets = {0, positions.numel()};
  layout->longest = length;
  layout->cells = positions;
  layout->sequences = at::floor_divide(positions, length);
  layout->positions = at::remainder(positions, length);
  return layout;
}

}  // namespace

// Of the tokens at `positions`, for an adapter's dropout as in the layers below.
std::shared_ptr<const TokenLayout> BackboneWithHead::target_layout(const ModelInput& input,
                                                                   const Tensor& positions) const {
  const bool drops = input.dropout && config_.lora && config_.lora->lora_dropout > 0.0;
  if (!drops || !positions.defined() || positions.numel() == 0) return nullptr;
  return layout_of_positions(positions, input.input_ids.size(1));
}

Tensor BackboneWithHead::head_logits(const ModelInput& input, const Tensor& hidden,
                                     const Tensor& positions) {
  return in_head(
      input, hidden, [&](const HeadInput& in, nn::Pass& p) { return (*parts_.head)(in, p); },
      positions);
}

Vocabulary BackboneWithHead::vocabulary(const ModelInput& input, const Tensor& hidden,
                                        const Tensor& positions) {
  const auto& head = head_as<LmHead>();
  const LmDecoder decoder = head.decoder(*parts_.backbone);
  const auto transform = [&](const HeadInput& in, nn::Pass& p) { return head.transform(in, p); };
  return {.x = in_head(input, hidden, transform, positions),
          .decoder = decoder,
          .options = {.rows_per_chunk = loss_rows_per_chunk(config_, options_.head_rows_per_chunk),
                      .precision = precision_of(input),
                      .softcap = decoder.softcap}};
}

Tensor BackboneWithHead::next_sentence(const ModelInput& input, const Encoded& encoded) {
  const auto& head = head_as<PretrainingHead>();
  return in_head(input, encoded.first_tokens(),
                 [&](const HeadInput& in, nn::Pass& p) { return head.next_sentence(in, p); });
}

std::shared_ptr<nn::Pass> BackboneWithHead::make_pass(
    const ModelInput& input, Precision precision, const std::shared_ptr<const TokenLayout>& layout,
    std::vector<nn::Rotation> rotations, std::shared_ptr<const nn::ReadTokens> read) const {
  nn::Mode mode = nn::Mode::kPlain;
  const bool records = c10::GradMode::is_enabled() && !input.without_adapter;
  if (options_.fused) mode = records ? nn::Mode::kTrain : nn::Mode::kEval;
  nn::PassOptions options{.parameters = store_.get(),
                          .inputs = {.layout = layout, .dropout = input.dropout},
                          .rotations = std::move(rotations),
                          .precision = precision,
                          .checkpointing = options_.checkpointing};
  options.cache = input.cache;
  options.read = std::move(read);
  options.without_adapter = input.without_adapter;
  options.int8_products = options_.int8_products && mode == nn::Mode::kEval;
  if (layout) {
    options.inputs.mask = layout->mask;
  } else if (input.attention_mask.defined()) {
    options.inputs.mask = input.attention_mask.unsqueeze(1).unsqueeze(1);  // [B, 1, 1, T]
  }
  return std::make_shared<nn::Pass>(mode, std::move(options));
}

bool BackboneWithHead::has_base() const {
  return config_.lora && std::ranges::none_of(parts_.weights, [&](const Weight& weight) {
           return weight.role() != ParameterRole::kAdapter && parts_.is_trained[weight.id()];
         });
}

namespace {

// Libraries for the CPU generate code for each size of a product, so that there should be few:
// tokens that nobody reads are added up to a multiple of a 32nd of all. Returns the tokens' indices
// in all [0, tokens), ascending; `index` is ascending, too.
Tensor with_few_sizes(const Tensor& index, int64_t tokens) {
  constexpr int64_t kSizes = 32;
  const int64_t step = (tokens + kSizes - 1) / kSizes;
  const int64_t count = (index.size(0) + step - 1) / step * step;
  if (index.is_meta()) return at::empty({count}, index.options());
  const Tensor padded = at::empty({count}, index.options());
  const int64_t* const given = index.const_data_ptr<int64_t>();
  auto* const all = padded.mutable_data_ptr<int64_t>();
  int64_t fillers = count - index.size(0);
  int64_t written = 0, taken = 0;
  for (int64_t token = 0; token < tokens && written < count; ++token) {
    const bool is_read = taken < index.size(0) && given[taken] == token;
    if (!is_read && fillers == 0) continue;
    taken += is_read ? 1 : 0;
    fillers -= is_read ? 0 : 1;
    all[written++] = token;
  }
  FT_CHECK(written == count, "positions are ascending, each of them a token");
  return padded;
}

// Returns where each row's positions begin, as TokenLayout::offsets. Where the host cannot read
// them, all count as those of the first row: kernels of such devices do not ask.
std::vector<int64_t> row_offsets(const Tensor& positions, int64_t rows, int64_t length) {
  std::vector<int64_t> offsets(static_cast<size_t>(rows) + 1, positions.numel());
  offsets.front() = 0;
  if (!positions.device().is_cpu()) return offsets;
  const int64_t* const all = positions.const_data_ptr<int64_t>();
  for (int64_t row = 1; row < rows; ++row) {
    const int64_t* const begin = std::lower_bound(all, all + positions.numel(), row * length);
    offsets[static_cast<size_t>(row)] = begin - all;
  }
  return offsets;
}

}  // namespace

std::optional<BackboneWithHead::Read> BackboneWithHead::read_tokens(
    const ModelInput& input, const std::shared_ptr<const TokenLayout>& layout) const {
  Tensor positions = input.read_positions;
  const std::optional<int64_t> last = parts_.backbone->last_layer();
  // As an export in int8, whose steps are as wide as the values of all tokens ask for.
  const bool rounds_all = options_.int8_products;
  if (!positions.defined() || !last || !options_.fused || rounds_all) return std::nullopt;
  const c10::Device device = positions.device();
  const kernels::DryDevice& dry = kernels::dry_device();
  // A device that compiles operators for shapes has positions more than once.
  if (device.is_meta() ? dry.computes_all_tokens : compiles_shapes(device)) return std::nullopt;
  const int64_t tokens = layout ? layout->cells.size(0) : input.input_ids.numel();
  // Where most are read, copying them costs what the others would.
  constexpr int64_t kMost = 3, kOf = 4;
  if (positions.size(0) * kOf > tokens * kMost) return std::nullopt;
  Tensor index = layout ? at::searchsorted(layout->cells, positions) : positions;
  if (device.is_cpu() || (device.is_meta() && dry.table == kernels::KernelTable::kCpu)) {
    index = with_few_sizes(index, tokens);
    positions = layout ? layout->cells.index_select(0, index) : index;
  }
  const auto of_read = layout_of_positions(positions, input.input_ids.size(1));
  of_read->offsets = row_offsets(positions, input.input_ids.size(0), input.input_ids.size(1));
  return Read{.tokens = std::make_shared<const nn::ReadTokens>(
                  nn::ReadTokens{.layer = *last, .index = index, .layout = of_read}),
              .positions = positions};
}

Encoded BackboneWithHead::encode(const ModelInput& input) {
  FT_CHECK(!input.without_adapter || has_base(),
           "a base is there where an adapter leaves it as it was");
  const auto layout = leaves_out_padding(input) ? input.layout : nullptr;
  const auto read = read_tokens(input, layout);
  const auto pass =
      make_pass(input, precision_of(input), layout, parts_.backbone->rotations(input, layout.get()),
                read ? read->tokens : nullptr);
  FT_CHECK(input.cache == nullptr || (architecture_.is_causal() && input.input_ids.size(0) == 1),
           "a cache of keys and values is one text's of a causal model");
  Encoded encoded = {.hidden = nn::run(pass, {},
                                       [&](const std::vector<nn::Value>& /*none*/, nn::Pass& p) {
                                         return (*parts_.backbone)(input, p);
                                       }),
                     .layout = layout,
                     .rows = input.input_ids.size(0),
                     .length = input.input_ids.size(1),
                     .read = read ? read->positions : Tensor()};
  if (input.cache != nullptr) input.cache->length += encoded.length;
  return encoded;
}

bool BackboneWithHead::leaves_out_padding(const ModelInput& input) const {
  if (!input.layout || !options_.fused || loss_spans_padding_) return false;
  return !block_sparse_ || input.input_ids.size(1) <= block_sparse_->longest_full();
}

Weights Model::trained_weights() const {
  Weights trained;
  for (const size_t id : store().trained()) trained.push_back(weights()[id]);
  return trained;
}

std::unique_ptr<Model> make_model(std::optional<Head> head, const ModelConfig& config,
                                  uint64_t seed, c10::Device device, const ModelOptions& options) {
  return std::make_unique<BackboneWithHead>(config_for(head, config), head, seed, device, options);
}

bool is_causal(const ModelConfig& config) { return architecture_of(config).is_causal(); }

bool has_next_sentence_head(const ModelConfig& config) {
  return architecture_of(config).has_next_sentence_head();
}

}  // namespace finetune
