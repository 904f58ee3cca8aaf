// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

#include "finetune/base/error.h"

namespace finetune {

// The cache cannot be written or read back: the run continues without it. Never thrown out of
// data/.
class CacheFailure : public std::runtime_error {
 public:
  explicit CacheFailure(const std::string& reason) : std::runtime_error(reason) {}
};

// Runs `work` and converts its file errors to CacheFailure, so that they end the use of the cache,
// not the run.
template <class Work>
auto on_cache(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw CacheFailure(error.what());
  }
}

}  // namespace finetune
