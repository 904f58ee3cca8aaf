// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "finetune/kernels/dropout.h"
#include "finetune/kernels/parameter_store.h"
#include "finetune/kernels/token_layout.h"
#include "finetune/model/model_options.h"

namespace finetune {

// What every layer of one forward pass shares.
struct ForwardContext {
  Tensor mask = {};  // [B, 1, 1, T] bool; undefined where every token may be attended to
  std::optional<DropoutStream> dropout = {};
  // Not null: hidden states are [1, N, C] and the mask is [1, 1, 1, N].
  std::shared_ptr<const TokenLayout> layout = {};
  // Where the gradients go; null: parameters are autograd's leaves and keep their own.
  ParameterStore* parameters = nullptr;
  ModelOptions options = {};

  // [B, T], or without padding [1, N].
  [[nodiscard]] Tensor without_padding(const Tensor& x) const {
    return layout ? x.flatten().index_select(0, layout->cells).unsqueeze(0) : x;
  }
  [[nodiscard]] Tensor drop(const Tensor& x, double p, int64_t layer, DropoutSite site) const {
    return dropout ? finetune::dropout(x, p, *dropout, layer, site, layout.get()) : x;
  }
  // Evaluation may be asked for in another precision than training.
  [[nodiscard]] Precision precision() const {
    return dropout ? options.precision : options.evaluation_precision;
  }
};

}  // namespace finetune
