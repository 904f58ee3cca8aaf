// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/dropout.h"
#include "kernels/interface/dropout_numbers.h"

namespace finetune::kernels {

// The random numbers of dropout() for these arguments.
[[nodiscard]] DropoutNumbers make_dropout_numbers(double p, const DropoutStream& stream,
                                                  int64_t layer, DropoutSite site);

// Returns nullopt if no element is dropped.
[[nodiscard]] std::optional<DropoutNumbers> make_dropout_numbers(
    double p, const std::optional<DropoutStream>& stream, int64_t layer, DropoutSite site);

// Returns a tensor of x's shape, [B, T, C] or [B, H, T, S], or [1, N, C] with a layout, whose
// elements are 0 or 1 / (1 - p). Uses plain tensor operations.
[[nodiscard]] Tensor dropout_mask(const Tensor& x, const DropoutNumbers& numbers,
                                  const TokenLayout* layout = nullptr);

}  // namespace finetune::kernels
