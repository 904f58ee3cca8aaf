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

  [[nodiscard]] int64_t count() const;  // of values
};

// Every parameter of the model that make_language_model (no head), make_pretraining_model or
// make_head_model makes, in its order: the model itself, built on the meta device. Throws what they
// throw.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(const ModelConfig& config,
                                                           std::optional<Head> head);

// Rows of the vocabulary's logits that the training loss makes at a time, where the options ask for
// `head_rows_per_chunk`: that many, or, of a causal model, whose every token is a target, a
// multiple of it, as long as the logits stay below 64 MiB. Matrix products of more rows are faster.
[[nodiscard]] int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk);

// What training keeps for the backward pass of one row, in bytes.
struct KeptBytes {
  int64_t embeddings = 0;        // outside the layers
  int64_t layer = 0;             // by each layer, its input among them
  int64_t layer_parameters = 0;  // of each layer: values, not bytes
  // What any number of rows shares.
  int64_t shared_embeddings = 0, shared_layer = 0;
};

// Measured by a dry run of the model's own equation on the meta device, so that a new family needs
// no formula: with a row of `length` tokens without padding, and the precision and `selective` of
// `options`. Block-sparse attention keeps the same and the logarithms of its sums. Some
// milliseconds.
[[nodiscard]] KeptBytes kept_for_backward(const ModelConfig& config, std::optional<Head> head,
                                          int64_t length, const ModelOptions& options);

}  // namespace finetune
