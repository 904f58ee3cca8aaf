// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

#include "finetune/nn/pass.h"

// Operations without parameters.
namespace finetune::nn {

using kernels::Activation;

// Selects the random numbers of a dropout.
struct DropoutPoint {
  double p = 0.0;
  int64_t layer = 0;
  DropoutSite site = DropoutSite::kEmbeddings;
  bool is_table = false;  // [R, C], shared by all samples
};
// x times its mask, which is a function of the stream, the point and the element; x itself without
// dropout. x [B, T, C] or what read_tokens() returns, or rows [B, C] without a token axis. No
// operation on the tape.
[[nodiscard]] Tensor masked(const Tensor& x, const DropoutPoint& point, const Pass& p);
// The same dropout, for kernels that draw it themselves: of the rows of x.
[[nodiscard]] kernels::RowDropout row_dropout(const Tensor& x, const DropoutPoint& point,
                                              const Pass& p);
// Dropout of [B, T, C], or of rows [B, C] without a token axis. Keeps nothing: the backward pass
// draws the mask again.
[[nodiscard]] Value dropout(Value x, const DropoutPoint& point, Pass& p);

// Adds all terms from left to right, with broadcasting. Keeps nothing.
[[nodiscard]] Value add(const std::vector<Value>& terms, Pass& p);
// Reshape [B, T, heads * D] to [B, T, heads, D], and back. Keep nothing.
[[nodiscard]] Value split_heads(Value x, int64_t heads, Pass& p);
[[nodiscard]] Value joined_heads(Value x, Pass& p);
// The first `rotated` values of each head in another order: 0, 2, 4, ..., 1, 3, 5, ... x [..., H
// D].
[[nodiscard]] Value in_halves(Value x, int64_t head_size, int64_t rotated, Pass& p);
// The same values with the parts of all groups together: of rows [G, P, D] those [P, G, D], for x
// [..., G P D].
[[nodiscard]] Value parts_together(Value x, int64_t groups, int64_t parts, Pass& p);
// x [B, T, C], or [N, C] of a layout, times a factor [T] or [N] of each token.
[[nodiscard]] Value scaled_tokens(Value x, const Tensor& factors, Pass& p);
// Splits x into parts of these sizes along the last dimension, each in its own memory.
[[nodiscard]] std::vector<Value> split(Value x, const std::vector<int64_t>& sizes, Pass& p);
// a * b. Keeps both.
[[nodiscard]] Value product(Value a, Value b, Pass& p);
// x times a weight of one value that is not trained. Keeps nothing.
[[nodiscard]] Value scaled_by(Value x, const Weight& factor, Pass& p);
// factor * x. Keeps nothing.
[[nodiscard]] Value scale(Value x, double factor, Pass& p);
// Converts x to the pass's precision; in kPlain returns x.
[[nodiscard]] Value to_precision(Value x, Pass& p);
// Returns x as products take it: on an accelerator in the pass's precision, so that several of them
// cast it once. The CPU's take it as it is.
[[nodiscard]] Value to_factor(Value x, Pass& p);
// Sets x [B, T, C] to zero at padding tokens.
[[nodiscard]] Value zero_padding(Value x, Pass& p);
// In the last layer of a pass with PassOptions::read, the tokens that are read of x [B, T, C], or
// [1, N, C] of a layout: [1, M, C]. Else x, and x of these tokens already.
[[nodiscard]] Value read_tokens(Value x, int64_t layer, Pass& p);
// [B, T, C] -> [B, C]
[[nodiscard]] Value first_token(Value x, Pass& p);
// Averages the tokens of [B, T, C] where mask [B, T] is true (undefined: all) -> [B, C]. Rows
// without such a token give NaN, as in transformers.
[[nodiscard]] Value mean_of_tokens(Value x, const Tensor& mask, Pass& p);
// Selects each row's token at index [B] -> [B, C].
[[nodiscard]] Value token_at(Value x, const Tensor& index, Pass& p);
// x [B, C] with rows of length 1, as torch.nn.functional.normalize
[[nodiscard]] Value normalized(Value x, Pass& p);
// c tanh(x / c)
[[nodiscard]] Value softcap(Value x, double c, Pass& p);
struct Clamp {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  double added = 0.0;
};
// min(max(x, least), most) + added. Overwrites x; keeps a bit for each value.
[[nodiscard]] Value clamped(Value x, const Clamp& range, Pass& p);
// f(x), with autograd for f.
[[nodiscard]] Value activate(Value x, Activation f, Pass& p);

}  // namespace finetune::nn
