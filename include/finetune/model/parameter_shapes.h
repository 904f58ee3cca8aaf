// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"

namespace finetune {

struct ParameterShape {
  std::string name;
  std::vector<int64_t> sizes;

  [[nodiscard]] int64_t count() const;  // number of values
};

// Returns every parameter of the model that make_language_model (no head), make_pretraining_model
// or make_head_model makes, in its order, by building the model on the meta device. Throws what
// they throw.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(const ModelConfig& config,
                                                           std::optional<Head> head);

// Rows of the vocabulary's logits that the training loss makes at a time, where the options ask for
// `head_rows_per_chunk`: that many, or, of a causal model, whose every token is a target, a
// multiple of it, as long as the logits stay below 64 MiB. Matrix products of more rows are faster.
[[nodiscard]] int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk);

// What training keeps for the backward pass of one row, in bytes.
struct KeptBytes {
  int64_t embeddings = 0;        // outside the layers
  int64_t layer = 0;             // of each layer, including its input
  int64_t layer_parameters = 0;  // of each layer: number of values, not bytes
  // Shared by all rows.
  int64_t shared_embeddings = 0, shared_layer = 0;
};

// Measured by a dry run of the model on the meta device, so that a new family needs no formula: a
// row of `length` tokens without padding, with the precision and `selective` of `options`. For
// block-sparse attention, the log-sum-exps are added. Takes milliseconds.
[[nodiscard]] KeptBytes kept_for_backward(const ModelConfig& config, std::optional<Head> head,
                                          int64_t length, const ModelOptions& options);

}  // namespace finetune
