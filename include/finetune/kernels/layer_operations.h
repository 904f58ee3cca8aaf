// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "finetune/kernels/block_attention.h"
#include "finetune/kernels/dropout.h"
#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"

// The fused operations of a transformer layer with their hand-written backward passes. None of them
// records autograd: call them under NoGradGuard. On the meta device they compute nothing and
// allocate exactly what they allocate elsewhere. Tensors [B, T, C] are contiguous, of any floating
// type; weights [C] are float32 (double for double).
namespace finetune::kernels {

// What all operations of one pass share.
struct PassInputs {
  Tensor mask = {};  // [B, 1, 1, T] bool, true: may be attended to; undefined: every token may
  // Not null: hidden states are [1, N, C], the mask is [1, 1, 1, N], and attention is full.
  std::shared_ptr<const TokenLayout> layout = {};
  std::optional<DropoutStream> dropout = {};  // nothing: no dropout
};

// y = LN(s), s = residual + Dropout(product + bias).
struct RowNorm {
  Tensor gamma, beta;
  double epsilon = 1e-12;
  double dropout = 0.0;
  int64_t layer = 0;
  DropoutSite site = DropoutSite::kAttentionOutput;
};

// Returns y; `product` becomes s, which is what the backward pass needs.
[[nodiscard]] Tensor fused_add_norm(const Tensor& product, const Tensor& bias,
                                    const Tensor& residual, const RowNorm& norm,
                                    const PassInputs& pass);
// y = LN(s) again, the same bits.
[[nodiscard]] Tensor fused_norm(const Tensor& sums, const RowNorm& norm, const PassInputs& pass);

// Gradients of a bias or a norm are sums over rows: [C] in float32, or, on devices that add up
// those of many parameters in one launch, partial sums [P, C]. ParameterStore::add() takes both.
struct RowNormGradients {
  Tensor product;  // in the memory of `sums`, or, without dropout, `gradient` itself
  Tensor gamma, beta, bias;
};
// `gradient`, of y, becomes the gradient of s and of the residual; `sums` is overwritten.
[[nodiscard]] RowNormGradients fused_add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                                       const RowNorm& norm, const PassInputs& pass);

// An elementwise function; null: the exact GELU, which is fused with the bias.
using Activation = Tensor (*)(const Tensor&);

// output <- f(input + bias); `output` may be the input's memory.
void fused_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output);
// `gradient`, of the output, becomes that of input + bias. Returns that of the bias, which may be
// partial sums.
[[nodiscard]] Tensor fused_activation_backward(const Tensor& input, const Tensor& bias,
                                               Activation f, const Tensor& gradient);

// Of rows [N, C] in float32 (float64 for float64): [C], or partial sums.
[[nodiscard]] Tensor sum_of_rows(const Tensor& rows);

// softmax(Q K^T / sqrt(D)) V of H heads.
struct HeadAttention {
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: as many as heads; else each serves heads / kv_heads of them
  int64_t layer = 0;     // of the dropout's numbers and of the random blocks
  double dropout = 0.0;
  bool causal = false;  // a token sees itself and those before it
  // A token sees tokens at a distance below this: with `causal` that many, itself included, else
  // 2 window - 1; 0: at any distance.
  int64_t window = 0;
  double scale = 0.0;    // of scores; 0: 1 / sqrt(D)
  double softcap = 0.0;  // c: scores s become c tanh(s / c); 0: they stay
  // In passes over more tokens than its longest_full(); else full attention.
  std::optional<BlockSparseOptions> block_sparse = {};
};

struct Attended {
  Tensor context;      // [B, T, C]
  Tensor log_sum_exp;  // [B, H, T]; of block-sparse attention alone, whose backward pass reads both
};

[[nodiscard]] Attended fused_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const HeadAttention& attention, const PassInputs& pass);
// Query, key and value become their gradients. `forward.context` is not read where log_sum_exp is
// undefined.
void fused_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value,
                              const Attended& forward, const Tensor& gradient,
                              const HeadAttention& attention, const PassInputs& pass);

}  // namespace finetune::kernels
