// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/dropout.h"
#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

// The random numbers of dropout() for these arguments.
[[nodiscard]] DropoutNumbers make_dropout_numbers(double p, const DropoutStream& stream,
                                                  int64_t layer, DropoutSite site);

// Nothing where no element is dropped.
[[nodiscard]] std::optional<DropoutNumbers> make_dropout_numbers(
    double p, const std::optional<DropoutStream>& stream, int64_t layer, DropoutSite site);

// A tensor like x [B, T, C] or [B, H, T, S], with a layout [1, N, C], of 0 and 1 / (1 - p), by
// plain tensor operations.
[[nodiscard]] Tensor dropout_mask(const Tensor& x, const DropoutNumbers& numbers,
                                  const TokenLayout* layout = nullptr);

}  // namespace finetune::kernels
