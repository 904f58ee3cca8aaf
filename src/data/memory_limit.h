// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "finetune/data/token_cache.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

// Bytes of the tokens and of all that belongs to them.
[[nodiscard]] int64_t memory_bytes(const TokenContent& content);

// Half of what is available when it is made: a list that grows is there twice while it is copied,
// and training needs memory too.
class MemoryLimit {
 public:
  // `key` names the files in messages.
  MemoryLimit(const TokenCacheOptions& cache, std::string key);

  // `fraction`: of the files, which `content` was made of. Throws Error(kIo) where the content
  // occupies more than the limit.
  void check(const TokenContent& content, double fraction) const;
  // The same for content of `bytes`.
  void check(int64_t bytes, double fraction) const;

 private:
  std::string key_;
  std::string cache_folder_;
  std::optional<int64_t> most_;  // bytes; nothing: not limited
};

}  // namespace finetune
