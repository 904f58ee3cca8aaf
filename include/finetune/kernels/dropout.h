// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Which random numbers one forward pass uses: dropout of an element is a function of (seed, update,
// the sample's place in the effective batch, layer, site, element). So cutting the batch otherwise,
// recomputing a layer or resuming changes nothing, and no mask is ever stored.
struct DropoutStream {
  uint64_t seed = 0;
  int64_t update = 0;       // steps before this one
  int64_t first_place = 0;  // of the first row
};

// Where in the model a dropout stands. Values are part of what equal bits depend on: append only.
enum class DropoutSite : uint32_t {
  kEmbeddings = 0,
  kAttentionProbabilities = 1,
  kAttentionOutput = 2,
  kFeedForwardOutput = 3,
  kPooledOutput = 4,        // the first token's pooled output, before a linear classifier
  kClassifierInput = 5,     // the first token before a classifier of two layers
  kClassifierHidden = 6,    // between those two layers
  kTokenOutput = 7,         // every token, before the classifier of tokens
  kAnswerInput = 8,         // BigBird's question answering: before its feed-forward part
  kAnswerOutput = 9,        // and at the end of it
  kFeedForwardHidden = 10,  // ModernBERT's gated product, before the last matrix
  kRelativePositions = 11,  // DeBERTa's embeddings of distances, in each layer
};

// Zeroes elements with probability p and scales the others by 1 / (1 - p).
//
// x is [B, T, C] or [B, H, T, S]; an element's random number is a function of its coordinates, so
// that more padding of T or S changes nothing. Limits: H <= 2^16, T and S <= 2^16, B <= 2^32.
// Differentiable; the backward pass computes the same mask again.
// Random numbers: Philox 4x32-10, word e mod 4 of the block {e / 4, row, place, layer and site}
// under the key of (seed, update), where e is the last coordinate and row is h * 2^16 + t.
//
// With a layout x is [1, N, C], and each token has the numbers that it has in [B, T, C].
[[nodiscard]] Tensor dropout(const Tensor& x, double p, const DropoutStream& stream, int64_t layer,
                             DropoutSite site, const TokenLayout* layout = nullptr);

// The mask that dropout() applies: a tensor like x of 0 and 1 / (1 - p), computed by ATen
// operators. Used by devices without kernels, and the reference of the kernel's test.
[[nodiscard]] Tensor dropout_mask_reference(const Tensor& x, double p, const DropoutStream& stream,
                                            int64_t layer, DropoutSite site);

}  // namespace finetune
