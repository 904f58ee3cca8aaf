// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// How samples are read during training instead of before (sample_stream.h).
struct StreamOptions {
  int64_t buffer = 1000;    // samples in the shuffle buffer; 1: in the order of the files
  uint64_t seed = 42;       // of the order
  int64_t longest = 512;    // maximum tokens of a sample
  int64_t token_types = 0;  // token types must be below; 0: no limit
};

}  // namespace finetune
