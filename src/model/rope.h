// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/token_layout.h"
#include "finetune/model/model_config.h"
#include "finetune/nn/rotation.h"

// Rotary position embeddings of decoders: transformers' modeling_rope_utils.py.
namespace finetune {

// Returns the number of values of a head that are rotated.
[[nodiscard]] int64_t rotated_size(const RopeParameters& rope, int64_t head_dim);

// Lengths of the consecutive sequences whose positions are rotated, those of the whole sequences
// where their ends are left out (empty: the same), and the number of tokens before them in the
// cache.
struct SequenceLengths {
  std::vector<int64_t> tokens;
  std::vector<int64_t> whole = {};
  int64_t before = 0;
};

// Returns the rotation of positions [N]. Types that depend on the length ("dynamic", "longrope")
// use the length of each sequence, so that the division into batches changes no result.
// (transformers uses the longest sequence of the batch.)
[[nodiscard]] nn::Rotation rope_rotation(const RopeParameters& rope, int64_t head_dim,
                                         int64_t max_position_embeddings, const Tensor& positions,
                                         const SequenceLengths& lengths);

// Returns the factors of queries at positions [N] (Llama 4): 1 + beta ln(1 + floor(position /
// original_max_position_embeddings)), float32; undefined if no position reaches that length, where
// all are 1.
[[nodiscard]] Tensor llama_4_query_scale(const RopeParameters& rope, const Tensor& positions,
                                         int64_t longest);

}  // namespace finetune
