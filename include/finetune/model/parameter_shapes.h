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

// The bytes that training keeps for the backward pass of one row.
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
