// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/nn/elementwise.h"
#include "finetune/nn/linear.h"
#include "finetune/nn/norm.h"

// Layers that read the tokens before a token through a state of constant size. Each sequence of a
// layout begins with a state of zeros. Padding tokens read as zeros.
namespace finetune::nn {

// A convolution of each column over the last K tokens (kernels/delta_rule.h): "weight" [C, 1, K],
// "bias". Keeps x.
class ShortConvolution {
 public:
  // `layer` selects the entry of the cache.
  ShortConvolution(const Scope& scope, int64_t columns, int64_t size, bool has_bias, bool has_silu,
                   int64_t layer);
  Value operator()(Value x, Pass& p) const;

 private:
  Weight weight_, bias_;
  bool has_silu_;
  int64_t layer_;
};

// out(C * conv(B * x)) with [B, C, x] = in(input): "in_proj", "conv", "out_proj" (LFM2).
class GatedConvolution {
 public:
  GatedConvolution(const Scope& scope, int64_t hidden, int64_t size, bool has_bias, int64_t layer);
  Value operator()(Value x, Pass& p) const;

 private:
  ShortConvolution convolution_;
  Linear in_, out_;
};

struct DeltaNetOptions {
  int64_t hidden = 0, heads = 0, key_heads = 0, key_size = 0, value_size = 0;
  int64_t convolution = 4;  // tokens that it reads
  double epsilon = 1e-6;
};

// Gated delta net (Yang et al. 2025; Qwen3.5's layout): queries, keys and values are short
// convolutions of projections, each head follows the gated delta rule with
//   g = -exp(A_log) softplus(a + dt_bias),  beta = sigmoid(b),
// and out(RmsNorm(o) * silu(z)) is the result.
class GatedDeltaNet {
 public:
  GatedDeltaNet(const Scope& scope, const DeltaNetOptions& options, int64_t layer);
  Value operator()(Value x, Pass& p) const;

 private:
  [[nodiscard]] Value ruled(Value mixed, Value a, Value b, Pass& p) const;

  DeltaNetOptions options_;
  int64_t layer_;
  Weight dt_bias_, a_log_;  // [H]
  // In transformers' order.
  ShortConvolution convolution_;
  RmsNorm norm_;
  Linear out_, mixed_, z_, b_, a_;
};

}  // namespace finetune::nn
