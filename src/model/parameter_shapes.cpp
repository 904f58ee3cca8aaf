// SPDX-License-Identifier: MIT
#include "finetune/model/parameter_shapes.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "finetune/tensor/meta_memory.h"
#include "model/backbone_with_head.h"

namespace finetune {

int64_t ParameterShape::count() const {
  int64_t values = 1;
  for (const int64_t size : sizes) values *= size;
  return values;
}

int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk) {
  constexpr int64_t kMostLogits = int64_t{1} << 24;  // of 4 bytes
  constexpr int64_t kUsualRows = 128;                // the factor is that of any number of rows
  if (!is_causal(config)) return head_rows_per_chunk;
  const int64_t factor = kMostLogits / (kUsualRows * config.vocab_size);
  return head_rows_per_chunk * std::clamp<int64_t>(factor, 1, 4);
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config, std::optional<Head> head,
                                             const std::vector<std::string>& freeze) {
  const ModelParts parts = make_parts(config_for(head, config), head);
  ModelOptions options;
  options.freeze = freeze;
  const std::vector<ParameterFormat> formats = parameter_formats(parts, config, options);
  std::vector<ParameterShape> shapes;
  for (const Weight& weight : parts.weights) {
    const ParameterFormat& format = formats[weight.id()];
    shapes.push_back({weight.name(), weight.sizes().vec(), weight.role(), format.trainable,
                      format.home == WeightHome::kBase});
  }
  return shapes;
}

namespace {

struct DryRun {
  int64_t kept = 0;        // bytes
  int64_t parameters = 0;  // values
  nn::Scratch scratch = {};
  int64_t head_tensors = 0;
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
               const ModelOptions& options, const nn::Scratch& where, int64_t layers,
               int64_t rows = 1) {
  const c10::NoGradGuard no_grad;
  const c10::Device meta(c10::kMeta);
  const ModelConfig config = with_layers(whole, layers);
  const ModelParts parts = make_parts(config_for(head, config), head);
  DryRun result{.scratch = where, .head_tensors = parts.head->hidden_tensors()};
  for (const Weight& weight : parts.weights) result.parameters += weight.numel();
  ModelOptions wide;  // the formats of weights do not change what is kept
  wide.freeze = options.freeze;
  ParameterStore store(parts.weights, parameter_formats(parts, config, wide), meta);
  const ModelInput input{
      .input_ids = at::empty({rows, length}, at::TensorOptions(meta).dtype(at::kLong)),
      .attention_mask = {},
      .dropout = DropoutStream{}};
  const MetaMemory memory;
  nn::Pass pass(nn::Mode::kTrain,
                {.parameters = &store,
                 .inputs = {.dropout = input.dropout},
                 .rotations = parts.backbone->rotations(input, /*layout=*/nullptr),
                 .precision = options.precision,
                 .checkpointing = options.checkpointing,
                 .scratch = &result.scratch});
  nn::Value y = (*parts.backbone)(input, pass);
  y = {};
  result.kept = memory.now();
  return result;
}

}  // namespace

KeptBytes kept_for_backward(const ModelConfig& config, std::optional<Head> head, int64_t length,
                            const ModelOptions& given, const nn::Scratch& where) {
  ModelOptions options = given;
  options.freeze.clear();
  const DryRun one = run_dry(config, head, length, options, where, 1);
  const DryRun two = run_dry(config, head, length, options, where, 2);
  KeptBytes kept = {.embeddings = 2 * one.kept - two.kept,
                    .layer = two.kept - one.kept,
                    .layer_parameters = two.parameters - one.parameters,
                    .head_tensors = one.head_tensors,
                    .scratch = one.scratch};
  if (architecture_of(config).keeps_tables()) {
    const int64_t one_of_two_rows = run_dry(config, head, length, options, where, 1, 2).kept;
    const int64_t two_of_two_rows = run_dry(config, head, length, options, where, 2, 2).kept;
    kept.shared_embeddings = 2 * kept.embeddings - (2 * one_of_two_rows - two_of_two_rows);
    kept.shared_layer = 2 * kept.layer - (two_of_two_rows - one_of_two_rows);
    kept.embeddings -= kept.shared_embeddings;
    kept.layer -= kept.shared_layer;
  }
  // A decoder's last norm belongs to the head, which keeps the stream that it reads in float32.
  if (is_causal(config)) kept.embeddings = length * config.hidden_size * 4;
  if (given.freeze.empty() && !config.lora) return kept;
  const int64_t layers = config.num_hidden_layers;
  const int64_t of_row = run_dry(config, head, length, given, where, layers).kept;
  const int64_t of_rows = run_dry(config, head, length, given, where, layers, 2).kept;
  kept.whole = of_rows - of_row;
  kept.shared_whole = of_row - *kept.whole;
  if (is_causal(config)) *kept.whole += length * config.hidden_size * 4;
  return kept;
}

}  // namespace finetune
