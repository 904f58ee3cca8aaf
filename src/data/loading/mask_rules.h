// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/base/random.h"
#include "finetune/data/masking.h"

// Shared by both kinds of masking. The order of random draws is part of the checkpoint format.
namespace finetune {

// Looks up an id in a list of MaskingOptions with one entry per id.
inline bool marks(const std::vector<uint8_t>& by_id, int64_t id) {
  const auto position = static_cast<size_t>(id);
  return position < by_id.size() && by_id[position] != 0;
}

// Returns the replacement of a selected token: 80 % the mask, 10 % a random token, 10 % the token
// itself (Devlin et al. 2019, section 3.1).
inline int64_t masked(const MaskingOptions& options, random::Sequence& sequence, int64_t id) {
  constexpr double kMaskShare = 0.8;
  constexpr double kMaskOrRandomShare = 0.9;
  const double fate = sequence.uniform();
  if (fate < kMaskShare) return options.mask_id;
  if (fate >= kMaskOrRandomShare) return id;
  return sequence.below(static_cast<uint32_t>(options.vocabulary));
}

}  // namespace finetune
