// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// The sequences of rows of tokens: a layout's, or all of as many tokens.
struct TokenRows {
  int64_t tokens = 0;  // of each sequence, if there is no layout
  const TokenLayout* layout = nullptr;

  [[nodiscard]] int64_t sequences(int64_t rows) const {
    return layout != nullptr ? layout->rows() : rows / tokens;
  }
  // The first row of a sequence; of the number of sequences: the end of the last one.
  [[nodiscard]] int64_t start(int64_t sequence) const {
    return layout != nullptr ? layout->offsets[static_cast<size_t>(sequence)] : sequence * tokens;
  }
};

// The gated delta rule (Yang et al. 2025, "Gated Delta Networks", eq. 10) of H heads. With the unit
// rows k and q of keys and queries, the latter divided by sqrt(Dk), from S = 0 [Dk, Dv] at the
// first token of each sequence:
//   S <- exp(g) S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q,
// where g = -exp(A_log) softplus(a + dt_bias) and beta = sigmoid(b).
// No sequence reads another: its values are the same alone, to the bit. States are float32
// (float64 of float64).
struct DeltaRule {
  // [..., 2 Hk Dk + H Dv]: queries, keys and values of each token. Each key head serves H / Hk
  // consecutive heads.
  Tensor mixed = {};
  Tensor a = {}, b = {};                // [..., H], of the type of `mixed`
  Tensor a_log = {}, dt_bias = {};      // [H], float32 (float64)
  int64_t key_heads = 1, key_size = 1;  // Hk, Dk
  TokenRows tokens = {};

  [[nodiscard]] int64_t heads() const { return a.size(-1); }
  [[nodiscard]] int64_t value_size() const {
    return (mixed.size(-1) - 2 * key_heads * key_size) / heads();
  }
  [[nodiscard]] int64_t rows() const { return a.numel() / heads(); }
  [[nodiscard]] int64_t sequences() const { return tokens.sequences(rows()); }
};

// Returns o [..., H Dv], of the type of `mixed`. `state` [H, Dk, Dv]: of one sequence that has
// begun before, and becomes that after its last token; undefined: none.
[[nodiscard]] Tensor fused_delta_rule(const DeltaRule& rule, const Tensor& state);

// The same by ATen's operators, which autograd differentiates, one token after the other.
[[nodiscard]] Tensor delta_rule_plainly(const DeltaRule& rule, const Tensor& state);

struct DeltaRuleGradients {
  Tensor mixed, a, b;
  Tensor a_log, dt_bias;  // [H]
};
// States are computed again from those at every kDeltaChunk-th token.
[[nodiscard]] DeltaRuleGradients fused_delta_rule_backward(const DeltaRule& rule,
                                                           const Tensor& gradient);
inline constexpr int64_t kDeltaChunk = 16;
inline constexpr double kDeltaEpsilon = 1e-6;  // of the lengths of keys and queries

// A convolution of each column over the last K tokens of a sequence: y[t] = f(b + sum_k w[k]
// x[t - K + 1 + k]), where tokens before the first one are 0.
struct ShortConvolution {
  Tensor weight = {};     // [C, K] float32 (float64)
  Tensor bias = {};       // [C], or undefined
  bool has_silu = false;  // f(x) = x sigmoid(x), else x
  TokenRows tokens = {};
};
// x [..., C], contiguous; `before` [K - 1, C]: the tokens before those of the one sequence;
// undefined: none.
[[nodiscard]] Tensor fused_short_convolution(const Tensor& x, const ShortConvolution& convolution,
                                             const Tensor& before);
// The same by ATen's operators, which autograd differentiates.
[[nodiscard]] Tensor short_convolution_plainly(const Tensor& x, const ShortConvolution& convolution,
                                               const Tensor& before);

struct ShortConvolutionGradients {
  Tensor input, weight, bias;  // weight [C, K]; bias undefined without one
};
[[nodiscard]] ShortConvolutionGradients fused_short_convolution_backward(
    const Tensor& gradient, const Tensor& x, const ShortConvolution& convolution);

}  // namespace finetune::kernels
