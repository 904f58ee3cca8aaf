// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/nn/pass.h"
#include "finetune/nn/scope.h"

namespace finetune {

// Computes the hidden states of tokens: a model without its head.
class Backbone {
 public:
  virtual ~Backbone() = default;
  // Returns [B, T, C]; [1, N, C] if the pass has a layout.
  virtual nn::Value operator()(const ModelInput& input, nn::Pass& p) = 0;
  // Returns the input of a classifier of sequences, [B, C]. Requires: a backbone with a pooler.
  [[nodiscard]] virtual nn::Value pool(const nn::Value& hidden, nn::Pass& p) const;
  // Returns the rotary position embeddings in the order of the layers' indices; empty: the model
  // has none.
  [[nodiscard]] virtual std::vector<nn::Rotation> rotations(const ModelInput& /*input*/,
                                                            const TokenLayout* /*layout*/) const {
    return {};
  }
  [[nodiscard]] virtual const Weight& word_embedding() const = 0;  // [V, C]
  // The layer that ends with the tokens that are read alone (PassOptions::read), if those are
  // fewer; nullopt: it computes all.
  [[nodiscard]] virtual std::optional<int64_t> last_layer() const { return std::nullopt; }
};

// The layers of a model, under the names scope.0, scope.1, ...
template <typename Layer, typename... More>
[[nodiscard]] std::vector<Layer> make_layers(const nn::Scope& scope, const ModelConfig& config,
                                             const More&... more) {
  std::vector<Layer> layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers.emplace_back(scope / layer, config, layer, more...);
  }
  return layers;
}

// Returns `x` [B, T], or [1, N] without padding if the pass has a layout.
[[nodiscard]] Tensor without_padding(const Tensor& x, const nn::Pass& p);

}  // namespace finetune
