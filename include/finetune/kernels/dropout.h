// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// The random numbers of one forward pass. An element's dropout is a function of (seed, update,
// index of the sample in the effective batch, layer, site, element), so another micro-batch size,
// recomputing a layer or resuming changes nothing, and no mask is stored.
struct DropoutStream {
  uint64_t seed = 0;
  int64_t update = 0;          // steps before this one
  int64_t first_position = 0;  // index of the first row in the effective batch
};

// Where in the model a dropout is. The values determine random numbers: append only.
enum class DropoutSite : uint32_t {
  kEmbeddings = 0,
  kAttentionProbabilities = 1,
  kAttentionOutput = 2,
  kFeedForwardOutput = 3,
  kPooledOutput = 4,        // the pooled first token, before a linear classifier
  kClassifierInput = 5,     // the first token, before a two-layer classifier
  kClassifierHidden = 6,    // between the layers of a two-layer classifier
  kTokenOutput = 7,         // every token, before the token classifier
  kAnswerInput = 8,         // BigBird's question answering: before the feed-forward part
  kAnswerOutput = 9,        // BigBird's question answering: after the feed-forward part
  kFeedForwardHidden = 10,  // ModernBERT's gated product, before the output projection
  kRelativePositions = 11,  // DeBERTa's relative position embeddings, in each layer
  kAdapter = 12,            // the input of a LoRA adapter; the layer is its number
};

// Zeroes elements with probability p and scales the others by 1 / (1 - p).
//
// x is [B, T, C] or [B, H, T, S]; an element's random number is a function of its coordinates, so
// more padding of T or S changes nothing. Limits: H <= 2^16, T and S <= 2^16, B <= 2^32.
// Differentiable; the backward pass recomputes the mask. Random numbers: Philox 4x32-10, word e mod
// 4 of the block {e / 4, row, position, layer and site} with the key of (seed, update), where e is
// the last coordinate and row is h * 2^16 + t.
//
// With a layout, x is [1, N, C], and each token has the same numbers as in [B, T, C].
[[nodiscard]] Tensor dropout(const Tensor& x, double p, const DropoutStream& stream, int64_t layer,
                             DropoutSite site, const TokenLayout* layout = nullptr);

// Returns the mask that dropout() applies: x's shape, values 0 and 1 / (1 - p), computed by ATen
// operators. For devices without kernels, and as the reference in the kernel's test.
[[nodiscard]] Tensor dropout_mask_reference(const Tensor& x, double p, const DropoutStream& stream,
                                            int64_t layer, DropoutSite site);

}  // namespace finetune
