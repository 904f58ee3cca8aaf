// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "train/setup/assemble.h"

namespace finetune {

struct QuantizedBase {
  std::string folder;
  bool was_there = false;  // in the cache, before this session
};

// With load_in_4bit, a folder below cache_dir that holds the base in four bits: quantised once,
// matrix by matrix, and found there by later sessions and other processes. Its name is the hash of
// the base's content and of everything that the codes depend on; its files are checked before they
// are used, and made again where they are damaged. transformers can load it. Returns the base's own
// folder where nothing is quantised, or where no folder can be written, which is logged: the base
// is then quantised in memory, to the same bits.
[[nodiscard]] QuantizedBase quantized_base(const TrainingArgs& args, const Parts& parts);

}  // namespace finetune
