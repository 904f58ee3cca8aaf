// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/cache/token_block.h"
#include "data/cache/token_cache.h"
#include "data/cache/token_manifest.h"

namespace finetune {

[[nodiscard]] std::string token_block_name(int64_t number);

// Appends blocks of samples to a cache's folder.
class BlockSink final : public TokenSink {
 public:
  BlockSink(std::string folder, std::string key, int64_t tokens_of_block)
      : folder_(std::move(folder)), key_(std::move(key)), tokens_of_block_(tokens_of_block) {}

  // Keeps the valid blocks up to the first invalid one and returns their number. Throws
  // Interrupted.
  int64_t resume(const TokenBlockLimits& limits, const ShowStep& show = {});

  [[nodiscard]] int64_t rows() const override { return rows_; }
  [[nodiscard]] int64_t samples() const override { return samples_; }
  [[nodiscard]] bool wants(int64_t tokens) const override { return tokens >= tokens_of_block_; }
  // Throws CacheFailure if the block cannot be written.
  void take(TokenContent content, int64_t rows, std::string extra) override;

  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }
  [[nodiscard]] const std::vector<TokenManifest::Block>& blocks() const { return blocks_; }

 private:
  [[nodiscard]] uint64_t bytes_there() const;
  void note(const std::string& path, const TokenBlock& block);

  std::string folder_;
  std::string key_;
  int64_t tokens_of_block_;
  int64_t rows_ = 0;
  int64_t samples_ = 0;
  std::vector<std::string> paths_;
  std::vector<TokenManifest::Block> blocks_;
};

}  // namespace finetune
