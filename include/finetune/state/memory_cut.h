// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Samples at a time where memory did not suffice for as many as the keys ask for; 0: it did. Kept
// in the checkpoint, so that the next session does not run out of memory again.
struct MemoryCut {
  int64_t asked_train = 0, train = 0;
  int64_t asked_eval = 0, eval = 0;
  friend bool operator==(const MemoryCut&, const MemoryCut&) = default;
};

// The part of `saved` that applies to a run of these sizes: a cut of another size than the keys ask
// for now is forgotten, and so is one that does not divide the batch of a device.
[[nodiscard]] MemoryCut usable_cut(const MemoryCut& saved, int64_t train, int64_t eval,
                                   int64_t samples_per_update);

}  // namespace finetune
