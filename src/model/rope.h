// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/token_layout.h"
#include "finetune/model/model_config.h"
#include "finetune/nn/rotation.h"

// How families of decoders turn positions into rotations: transformers' modeling_rope_utils.py.
namespace finetune {

// How many of a head's values are rotated.
[[nodiscard]] int64_t rotated_size(const RopeParameters& rope, int64_t head_dim);

// How many tokens the sequences have whose places are rotated, one after the other, and how many
// came before them.
struct SequenceLengths {
  std::vector<int64_t> tokens;
  int64_t before = 0;
};

// Of places [N]. Types that depend on a sequence's length
// ("dynamic", "longrope") take each sequence's own: how a batch is cut changes nothing. (In
// transformers it is the longest of the batch.)
[[nodiscard]] nn::Rotation rope_rotation(const RopeParameters& rope, int64_t head_dim,
                                         int64_t max_position_embeddings, const Tensor& places,
                                         const SequenceLengths& lengths);

}  // namespace finetune
