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
  ParameterRole role = ParameterRole::kOther;
  bool trains = true;
  bool is_base = false;  // of the frozen base of an adapter
  Division division = {};

  [[nodiscard]] int64_t count() const;  // number of values
  [[nodiscard]] bool is_divided() const { return division.ranks > 1; }
  // What one rank keeps: the sizes themselves, or the number of its values.
  [[nodiscard]] std::vector<int64_t> own_sizes() const;
};

// The values of a weight that is never trained and whose formula is computed: files need not have
// it. nullopt for other weights.
[[nodiscard]] std::optional<Tensor> fixed_values(const ModelConfig& config, const Weight& weight);

// Returns every parameter of the model that make_language_model (no head), make_pretraining_model
// or make_head_model makes, in its order, by building the model on the meta device. Throws what
// they throw. `freeze`: patterns of FrozenParameters.
[[nodiscard]] std::vector<ParameterShape> parameter_shapes(
    const ModelConfig& config, std::optional<Head> head,
    const std::vector<std::string>& freeze = {}, const ShardingOptions& sharding = {});

// Rows of the vocabulary's logits that the training loss makes at a time, where the options ask for
// `head_rows_per_chunk`: that many, or, of a causal model, whose every token is a target, a
// multiple of it, as long as the logits stay below 64 MiB. Matrix products of more rows are faster.
[[nodiscard]] int64_t loss_rows_per_chunk(const ModelConfig& config, int64_t head_rows_per_chunk);

}  // namespace finetune
