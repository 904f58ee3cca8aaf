// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/cache/token_block.h"
#include "finetune/data/long_step.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

// Totals over all blocks of a token cache.
struct CachedTotals {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t longest = 0;
  int64_t token_types = 1;  // 1 + the largest; 1: none is stored
  bool has_values = false;  // every sample has values
  bool has_answers = false;
  std::string fingerprint;  // TokenDataset's of the same content
};

// Adds up blocks and computes the fingerprint of their content with one block in memory at a time.
// Throws Error(kData) if a block is corrupt, and Interrupted.
[[nodiscard]] CachedTotals total_of_blocks(const std::vector<std::string>& paths,
                                           const TokenBlockLimits& limits,
                                           const ShowStep& show = {});

// Samples in the blocks of a token cache. A corrupt sample is Error(kData), and its block is
// deleted, so that the next start builds it again.
class CachedTokens final : public SequenceDataset {
 public:
  // `use` is kept as long as this object.
  CachedTokens(std::vector<TokenBlock> blocks, CachedTotals totals,
               std::shared_ptr<const void> use = {});

  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t size() const override { return totals_.sequences / choices_; }
  [[nodiscard]] int64_t choices() const override { return choices_; }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override;
  // Counts no memory for mapped pages, because the system reclaims them on demand.
  [[nodiscard]] std::optional<DatasetExtent> extent() const override;
  [[nodiscard]] std::string fingerprint() const override { return totals_.fingerprint; }
  [[nodiscard]] int64_t tokens() const override { return totals_.tokens; }
  [[nodiscard]] int64_t longest() const override { return totals_.longest; }

  [[nodiscard]] const std::vector<TokenBlock>& blocks() const { return blocks_; }
  // Returns the ids of the consecutive sequences [begin, end), which are in one block.
  [[nodiscard]] TokenSpan run(int64_t begin, int64_t end) const;

 private:
  struct Position {
    const TokenBlock* block;
    int64_t sequence;  // in that block
  };
  [[nodiscard]] Position find(int64_t index, int64_t choice) const;

  std::vector<TokenBlock> blocks_;
  std::vector<int64_t> first_;  // index of the first sequence of each block
  CachedTotals totals_;
  int64_t choices_ = 1;
  std::shared_ptr<const void> use_;
};

}  // namespace finetune
