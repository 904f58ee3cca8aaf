// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/dropout.h"

namespace finetune {

// What every layer of one forward pass shares.
struct ForwardContext {
  Tensor mask;  // [B, 1, 1, T] bool; undefined where every token may be attended to
  std::optional<DropoutStream> dropout;

  [[nodiscard]] Tensor drop(const Tensor& x, double p, int64_t layer, DropoutSite site) const {
    return dropout ? finetune::dropout(x, p, *dropout, layer, site) : x;
  }
};

}  // namespace finetune
