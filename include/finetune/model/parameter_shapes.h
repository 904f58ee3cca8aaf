// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/nn/scratch.h"

namespace finetune {

struct ParameterShape {
  std::string name;
  std::vector<int64_t> sizes;
  ParameterRole role = ParameterRole::kOther;
  bool trains = true;
  bool is_base = false;  // of the frozen base of an adapter

  [[nodiscard]] int64_t count() const;  // number of values
};

// Returns every parameter of the model that make_language_model (no head), make_pretraining_model
// or make_head_model makes, in its order, by building the model on the meta device. Throws what
// they throw. `freeze`: patterns of FrozenParameters.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(
    const ModelConfig& config, std::optional<Head> head,
    const std::vector<std::string>& freeze = {});

// Rows of the vocabulary's logits that the training loss makes at a time, where the options ask for
// `head_rows_per_chunk`: that many, or, of a causal model, whose every token is a target, a
// multiple of it, as long as the logits stay below 64 MiB. Matrix products of more rows are faster.
[[nodiscard]] int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk);

// What training allocates for one row, in bytes. The first members are kept for the backward pass.
struct KeptBytes {
  int64_t embeddings = 0;        // outside the layers; of a decoder also what its head keeps
  int64_t layer = 0;             // of each layer, including its input
  int64_t layer_parameters = 0;  // of each layer: number of values, not bytes
  // Shared by all rows.
  int64_t shared_embeddings = 0, shared_layer = 0;
  int64_t head_tensors = 0;  // ModelHead::hidden_tensors()
  // With frozen parameters, of the embeddings and all layers together: for each row, and shared.
  std::optional<int64_t> whole = {}, shared_whole = {};
  nn::Scratch scratch;  // of one layer, as its parts declare it
};

// Measured by a dry run of the model on the meta device, so that a new family needs no formula: a
// row of `length` tokens without padding, with the precision, `selective` and `freeze` of
// `options`. `where` has the table of kernels and the threads of the planned run. Takes
// milliseconds.
[[nodiscard]] KeptBytes kept_for_backward(const ModelConfig& config, std::optional<Head> head,
                                          int64_t length, const ModelOptions& options,
                                          const nn::Scratch& where = {});

}  // namespace finetune
