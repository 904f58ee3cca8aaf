// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "finetune/kernels/block_attention.h"
#include "finetune/kernels/dropout.h"
#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"

// The fused operations of a transformer layer with their hand-written backward passes. They do not
// record autograd: call them under NoGradGuard. On the meta device they compute nothing and
// allocate the same sizes as on real devices. Tensors [B, T, C] are contiguous, of any floating
// type; weights [C] are float32 (float64 for float64 tensors).
namespace finetune::kernels {

// Inputs shared by all operations of one pass.
struct PassInputs {
  Tensor mask = {};  // [B, 1, 1, T] bool, true: may be attended to; undefined: all may
  // If not null: hidden states are [1, N, C], the mask is [1, 1, 1, N], and attention is full.
  std::shared_ptr<const TokenLayout> layout = {};
  std::optional<DropoutStream> dropout = {};  // nullopt: no dropout
  // Attention's, if not null: queries are [1, M, C], those of these tokens alone.
  std::shared_ptr<const TokenLayout> queries = {};
};

// y = LN(s), s = residual + Dropout(product + bias).
struct RowNorm {
  Tensor gamma, beta;
  double epsilon = 1e-12;
  double dropout = 0.0;
  int64_t layer = 0;
  DropoutSite site = DropoutSite::kAttentionOutput;
};

// Returns y and overwrites `product` with s, which the backward pass needs.
[[nodiscard]] Tensor fused_add_norm(const Tensor& product, const Tensor& bias,
                                    const Tensor& residual, const RowNorm& norm,
                                    const PassInputs& pass);
// Recomputes y = LN(s) to the same bits.
[[nodiscard]] Tensor fused_norm(const Tensor& sums, const RowNorm& norm, const PassInputs& pass);

// Gradients of a bias or a norm are sums over rows: [C] in float32, or, on devices that add up
// those of many parameters in one launch, partial sums [P, C]. ParameterStore::add() takes both.
struct RowNormGradients {
  Tensor product;  // in the memory of `sums`; without dropout `gradient` itself
  Tensor gamma, beta, bias;
};
// Overwrites `gradient` (of y) with the gradient of s and of the residual; overwrites `sums` too.
[[nodiscard]] RowNormGradients fused_add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                                       const RowNorm& norm, const PassInputs& pass);

// The dropout of rows [N, C]: of samples of as many rows each, or of a layout's tokens.
struct RowDropout {
  double p = 0.0;  // 0: none
  DropoutStream stream = {};
  int64_t layer = 0;
  DropoutSite site = DropoutSite::kAdapter;
  int64_t rows_of_sample = 1;
  const TokenLayout* layout = nullptr;
};

// Whether the products of a LoRA adapter (nn::LoraTerm) with its input [N, in] and factor A [r, in]
// have kernels on their device; where they have none, dropout and products are operations of their
// own.
[[nodiscard]] bool has_adapter_products(const Tensor& x, const Tensor& a);
// What an adapter multiplies its input with.
struct AdapterFactor {
  Tensor a;  // [r, in]
  double scale = 1.0;
  RowDropout dropout = {};
};
// scale drop(x) A^T [N, r] of each adapter, of layers that read the same x.
[[nodiscard]] std::vector<Tensor> fused_adapter_products(
    const Tensor& x, const std::vector<AdapterFactor>& adapters);
// of_input += drop'(low A), or of_input = it (`adds` false), for the gradient `low` [N, r] of the
// product. Returns the gradient of A as partial sums [P, r * in]. `of_input`, which may be x or
// undefined, is of the type of x.
[[nodiscard]] Tensor fused_adapter_backward(const Tensor& of_input, bool adds, const Tensor& x,
                                            const Tensor& low, const Tensor& a,
                                            const RowDropout& dropout);

// An elementwise function; null: the exact GELU, which is fused with the bias.
using Activation = Tensor (*)(const Tensor&);

// Writes f(input + bias) to `output`, which may be the input's memory.
void fused_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output);
// `gradient`, of the output, becomes that of input + bias. Returns that of the bias, which may be
// partial sums.
[[nodiscard]] Tensor fused_activation_backward(const Tensor& input, const Tensor& bias,
                                               Activation f, const Tensor& gradient);

// The activations that gated products have kernels for, tanh_gelu() also fused with a bias:
// x sigmoid(x), the exact GELU and its tanh form.
[[nodiscard]] Tensor silu(const Tensor& x);
[[nodiscard]] Tensor gelu(const Tensor& x);
[[nodiscard]] Tensor tanh_gelu(const Tensor& x);

// f(gate) * up.
[[nodiscard]] Tensor fused_gated_product(const Tensor& gate, const Tensor& up, Activation f);
// `gradient` is that of the product; gate and up become their gradients.
void fused_gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                                  const Tensor& gradient);

// xIELU (Huang and Schlag 2024, eq. 9), elementwise: a x^2 + x / 2 for x > 0, else
// b (exp(min(x, -1e-6)) - 1 - x) + x / 2, with a = softplus(alpha_p), b = 1/2 + softplus(alpha_n).
struct Xielu {
  Tensor alpha_p, alpha_n;  // [1], float32
};
struct XieluGradients {
  Tensor alpha_p, alpha_n;  // partial sums [P, 1]
};
[[nodiscard]] Tensor fused_xielu(const Tensor& x, const Xielu& f);
// By ATen's operators, under autograd: the reference.
[[nodiscard]] Tensor xielu_plainly(const Tensor& x, const Xielu& f);
// `gradient`, of the output, becomes that of x.
[[nodiscard]] XieluGradients fused_xielu_backward(const Tensor& gradient, const Tensor& x,
                                                  const Xielu& f);

// y = x / sqrt(mean(x^2) + epsilon) * f over the last dimension, with f = weight or 1 + weight
// (Zhang and Sennrich 2019).
struct RmsNorm {
  Tensor weight;
  double epsilon = 1e-6;
  bool adds_one = false;  // f = 1 + weight
};
// -> like x, of `type`
[[nodiscard]] Tensor fused_rms_norm(const Tensor& x, const RmsNorm& norm, at::ScalarType type);
// s = x + branch, of the type that ATen's addition gives, and its norm y of `type`.
struct SumAndNorm {
  Tensor sum, normed;
};
[[nodiscard]] SumAndNorm fused_add_rms_norm(const Tensor& x, const Tensor& branch,
                                            const RmsNorm& norm, at::ScalarType type);

struct RmsNormGradients {
  Tensor input;         // of x's type; in the memory of y's gradient if that has x's type
  Tensor weight;        // [C] in float32, or partial sums [P, C]
  Tensor rounded = {};  // `input` in y's type, in the memory of y's gradient; may be undefined
};
// If `sum` (of x's type) is defined, the gradient of x is added to it, and `input` is `sum`.
// `rounds`: whether `rounded` is wanted, from devices that store it with `input`.
[[nodiscard]] RmsNormGradients fused_rms_norm_backward(const Tensor& gradient, const Tensor& x,
                                                       const RmsNorm& norm, const Tensor& sum,
                                                       bool rounds);

// Rotary positions (Su et al. 2021): the pairs (i, i + R / 2) of each head are turned by angles of
// their token.
struct HeadRotation {
  Tensor cos, sin;        // [T, R / 2] float32
  int64_t head_size = 0;  // D
  bool back = false;      // by the negative angles, which is the backward pass
};
// Queries and keys [B, T, heads * D] or some of them, of one type; values of a head after its first
// R stay. Returns the turned heads, in the memory of x where the device turns them there; x is not
// to be read afterwards.
[[nodiscard]] std::vector<Tensor> fused_rotation(const std::vector<Tensor>& x,
                                                 const HeadRotation& rotation);

// Of rows [N, C] in float32 (float64 for float64): [C], or partial sums.
[[nodiscard]] Tensor sum_of_rows(const Tensor& rows);

// softmax(Q K^T / sqrt(D)) V of H heads.
struct HeadAttention {
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: same as heads; otherwise each serves heads / kv_heads heads
  int64_t layer = 0;     // selects the numbers of dropout and the random blocks
  double dropout = 0.0;
  bool causal = false;  // a token attends to itself and earlier tokens only
  // A token attends to tokens at a distance below this: `window` tokens including itself if causal,
  // else 2 window - 1; 0: no limit.
  int64_t window = 0;
  double scale = 0.0;    // of scores; 0: 1 / sqrt(D)
  double softcap = 0.0;  // c: scores s become c tanh(s / c); 0: unchanged
  // [heads] float32: a further score of each row, to a key that has no value; or undefined. Not
  // with block_sparse.
  Tensor sinks = {};
  // Used in passes over more tokens than its longest_full(); shorter ones have full attention.
  std::optional<BlockSparseOptions> block_sparse = {};
};

struct Attended {
  Tensor context;  // [B, T, C]
  // Of each head's rows; set by block-sparse attention and by operators that never have rows of
  // scores in memory. Then the backward pass reads both.
  Tensor log_sum_exp;
};

// Whether fused_attention() takes queries of some of the tokens x [B, T, C]: PassInputs::queries.
[[nodiscard]] bool attends_fewer_queries(const Tensor& x, const HeadAttention& attention,
                                         const PassInputs& pass);
[[nodiscard]] Attended fused_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const HeadAttention& attention, const PassInputs& pass);
struct AttendedGradients {
  Tensor query, key, value;
  Tensor sinks = {};  // [heads] float32, of those that there are
};
// May overwrite query, key and value, and returns their gradients, in their memory or not. Does not
// read `forward.context` if log_sum_exp is undefined.
[[nodiscard]] AttendedGradients fused_attention_backward(
    const Tensor& query, const Tensor& key, const Tensor& value, const Attended& forward,
    const Tensor& gradient, const HeadAttention& attention, const PassInputs& pass);

}  // namespace finetune::kernels
