// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "finetune/base/error.h"

namespace finetune::chat {

// What one rendering may use, since templates and rows are untrusted.
struct Limits {
  static constexpr int64_t kMaxSteps = 10'000'000;
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // of one text
  static constexpr size_t kMaxItems = 1'000'000;         // of one list
  static constexpr int kMaxDepth = 2'000;                // of nested evaluations

  int64_t steps = 0;
  int depth = 0;

  void count(size_t amount = 1) {
    steps += static_cast<int64_t>(amount);
    if (steps > kMaxSteps) {
      throw Error(ErrorKind::kData, "the template takes more than 10 million steps");
    }
  }
  // Checks the size of a text and counts its bytes as work, 64 a step.
  void check_text(size_t bytes) {
    if (bytes > kMaxBytes) throw Error(ErrorKind::kData, "the template makes more than 64 MiB");
    count(bytes / 64);
  }
  void check_list(size_t items) {
    if (items > kMaxItems) {
      throw Error(ErrorKind::kData, "the template makes a list of more than 1,000,000 items");
    }
    count(items / 8);
  }
};

}  // namespace finetune::chat
