// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/model/model.h"
#include "finetune/nn/pass.h"

namespace finetune {

// What makes hidden states of tokens: all of a model but its head.
class Backbone {
 public:
  virtual ~Backbone() = default;
  // -> [B, T, C], with the pass's layout [1, N, C]
  virtual nn::Value operator()(const ModelInput& input, nn::Pass& p) = 0;
  // What a classifier of whole sequences reads, [B, C]. Requires: a backbone with a pooler.
  [[nodiscard]] virtual nn::Value pool(const nn::Value& hidden, nn::Pass& p) const;
  // How positions turn heads, in the order in which layers name them; empty: they do not.
  [[nodiscard]] virtual std::vector<nn::Rotation> rotations(const ModelInput& /*input*/,
                                                            const TokenLayout* /*layout*/) const {
    return {};
  }
  [[nodiscard]] virtual const Tensor& word_embedding() const = 0;  // [V, C]
};

// [B, T], or without padding [1, N].
[[nodiscard]] Tensor without_padding(const Tensor& x, const nn::Pass& p);

}  // namespace finetune
