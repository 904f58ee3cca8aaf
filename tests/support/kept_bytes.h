// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/ops/empty.h>

#include "finetune/kernels/dry_device.h"
#include "finetune/model/model.h"
#include "finetune/task/words_loss.h"
#include "finetune/tensor/meta_memory.h"

namespace finetune {

// The same configuration with another number of layers; lists with an entry per layer get the new
// length.
inline ModelConfig with_layers(ModelConfig config, int64_t layers) {
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

// The bytes that a language model keeps for its backward pass over rows of `tokens`, all of which
// are read, without gradients, by a dry run.
inline int64_t kept_bytes(ModelConfig config, int64_t tokens, ModelOptions options = {},
                          const kernels::DryDevice& device = {}) {
  const kernels::DryRun dry(device);
  const c10::Device meta(c10::kMeta);
  options.fused = true;
  options.draw_weights = false;
  const auto model = make_model(std::nullopt, config, 0, meta, options);
  const auto integers = at::TensorOptions(meta).dtype(at::kLong);
  const Tensor ids = at::empty({1, tokens}, integers);
  const Tensor one = at::empty({1}, integers);  // position that is predicted
  const MetaMemory memory;
  const ModelInput input = {.input_ids = ids, .attention_mask = {}, .dropout = DropoutStream{}};
  const Tensor loss = words_loss(*model, input, model->encode(input), one, one, {});
  int64_t gradients = 0;
  for (const MetaMemory::Event& event : memory.events()) {
    if (event.use == MemoryUse::kGradient) gradients += event.bytes;
  }
  return memory.now() - gradients;
}

}  // namespace finetune
