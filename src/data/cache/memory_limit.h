// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/data/token_cache.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

// Returns the bytes of the tokens and all data that belongs to them.
[[nodiscard]] int64_t memory_bytes(const TokenContent& content);

// Limits content in memory to half of the memory available at construction: a growing list exists
// twice while it is copied, and training needs memory too.
class MemoryLimit {
 public:
  // `key` names the files in messages.
  MemoryLimit(const TokenCacheOptions& cache, std::string key);

  // `fraction`: the part of the files from which `content` was made. Throws Error(kIo) if the
  // content exceeds the limit.
  void check(const TokenContent& content, double fraction) const;
  // The same for content of `bytes`.
  void check(int64_t bytes, double fraction) const;

 private:
  std::string key_;
  std::string cache_folder_;
  std::optional<int64_t> most_;  // bytes; nullopt: no limit
};

}  // namespace finetune
