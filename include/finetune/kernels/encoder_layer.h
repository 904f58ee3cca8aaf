// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "finetune/kernels/block_attention.h"
#include "finetune/kernels/dropout.h"
#include "finetune/kernels/parameter_store.h"
#include "finetune/kernels/precision.h"
#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"

// The encoder layer of BERT and its kin as two functions with a backward pass written by hand:
//   a = LN(x + Dropout(O Attention(x)));  y = LN(a + Dropout(W2 f(W1 a)))
// No autograd graph, no stored dropout mask, the least that a backward pass needs is kept. The
// readable twin is EncoderLayer in src/model/encoder.h, which a test compares with this.
namespace finetune {

// The tensors that the modules registered. Weights [out, in], biases [out]; query, key and value
// have none where the configuration says so (undefined).
struct EncoderLayerWeights {
  Tensor query, query_bias, key, key_bias, value, value_bias;
  Tensor attention_output, attention_output_bias, attention_norm, attention_norm_bias;
  Tensor intermediate, intermediate_bias, output, output_bias, output_norm, output_norm_bias;
};

struct EncoderLayerOptions {
  int64_t layer = 0;  // of the dropout's numbers
  int64_t heads = 1;
  double hidden_dropout = 0.0;
  double attention_dropout = 0.0;
  double layer_norm_eps = 1e-12;
  // f, elementwise; null: the exact GELU, which is fused. Others are differentiated by autograd.
  Tensor (*activation)(const Tensor&) = nullptr;
  // BigBird's attention, in passes over more tokens than its longest_full(); else full attention.
  std::optional<BlockSparseOptions> block_sparse = {};
};

// What all layers of one pass share.
struct EncoderPass {
  ParameterStore& parameters;
  Tensor mask;  // [B, 1, 1, T] bool; undefined: every token may be attended to
  // Not null: x is [1, N, C] and the mask [1, 1, 1, N]; attention is full.
  std::shared_ptr<const TokenLayout> layout = {};
  std::optional<DropoutStream> dropout;  // nothing: no dropout
  Precision precision = Precision::kFloat32;
  // Keep the matrix products alone; activation, norms and attention probabilities are computed
  // again (Korthikanti et al. 2022, "selective"). Otherwise what is cheap to keep is kept as well.
  bool selective = false;
};

// What the backward pass of one layer needs, in the pass's precision.
struct EncoderLayerState {
  std::vector<Tensor> tensors;
  Tensor log_sum_exp;  // [B, H, T], of block-sparse attention alone
};

// x [B, T, C] in the pass's precision -> y of the same kind. With no `state` nothing is kept.
// Without gradients of autograd's: call it under NoGradGuard.
[[nodiscard]] Tensor encoder_layer_forward(const Tensor& x, const EncoderLayerWeights& weights,
                                           const EncoderLayerOptions& options,
                                           const EncoderPass& pass, EncoderLayerState* state);

// dL/dx from dL/dy, both [B, T, C] in the pass's precision. Adds the weights' gradients to
// pass.parameters and completes them; frees the state's tensors as it goes. `dy` may be
// overwritten.
[[nodiscard]] Tensor encoder_layer_backward(Tensor dy, const EncoderLayerWeights& weights,
                                            const EncoderLayerOptions& options,
                                            const EncoderPass& pass, EncoderLayerState& state);

}  // namespace finetune
