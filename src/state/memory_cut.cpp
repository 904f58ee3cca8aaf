// SPDX-License-Identifier: MIT
#include "finetune/state/memory_cut.h"

namespace finetune {

MemoryCut usable_cut(const MemoryCut& saved, int64_t train, int64_t eval,
                     int64_t samples_per_update) {
  MemoryCut cut;
  if (saved.train > 0 && saved.asked_train == train && samples_per_update % saved.train == 0) {
    cut.asked_train = train;
    cut.train = saved.train;
  }
  if (saved.eval > 0 && saved.asked_eval == eval && eval % saved.eval == 0) {
    cut.asked_eval = eval;
    cut.eval = saved.eval;
  }
  return cut;
}

}  // namespace finetune
