// SPDX-License-Identifier: MIT
#include "data/cache/token_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::message_of;

constexpr int32_t kFirst = 1 << 16;
constexpr int32_t kIds = 200'000;  // three bytes each: three chunks of the file
// This id crosses into the second chunk.
constexpr uint64_t kLastOfFirstChunk = TokenBlock::kPiece / 3;

// Makes one sequence of ids from kFirst on; the one at `changed` is replaced by `id`.
std::string block_of(int64_t changed, int32_t id) {
  std::vector<int32_t> ids(static_cast<size_t>(kIds));
  std::iota(ids.begin(), ids.end(), kFirst);
  ids[static_cast<size_t>(changed)] = id;
  return encode_token_block({.key = std::string(32, 'a'), .rows_end = 1},
                            {.ids = ids, .offsets = {0, kIds}}, "");
}

std::string written(const testing::TemporaryFolder& folder, const std::string& content) {
  const std::string path = folder / "block-0";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(TokenBlock, ReadsIdsOfThreeBytesAcrossItsChunks) {
  const testing::TemporaryFolder folder;
  const TokenBlock block(written(folder, block_of(7, 0xffffff)), {});
  const std::vector<int32_t> ids = block.ids().to_vector();
  ASSERT_EQ(ids.size(), static_cast<size_t>(kIds));
  EXPECT_EQ(ids[7], 0xffffff);
  for (const uint64_t i : {uint64_t{0}, kLastOfFirstChunk, kLastOfFirstChunk + 1}) {
    EXPECT_EQ(ids[i], kFirst + static_cast<int32_t>(i));
  }
  EXPECT_EQ(ids.back(), kFirst + kIds - 1);
  EXPECT_EQ(block.pieces(), 3);
}

TEST(TokenBlock, FindsAnIdBeyondTheVocabularyBetweenTwoChunks) {
  const testing::TemporaryFolder folder;
  const int32_t vocabulary = kFirst + kIds;
  const std::string path =
      written(folder, block_of(static_cast<int64_t>(kLastOfFirstChunk), vocabulary));
  const TokenBlock block(path, {.ids = vocabulary});
  EXPECT_NO_THROW(block.check(0));
  EXPECT_GOLDEN(message_of<Error>([&] { block.check(1); }));
}

TEST(TokenBlock, FindsADamagedByteOfAnIdOfThreeBytes) {
  const testing::TemporaryFolder folder;
  std::string content = block_of(0, kFirst);
  content[content.size() / 2] ^= 1;
  const TokenBlock block(written(folder, content), {});
  EXPECT_GOLDEN(message_of<Error>([&] { static_cast<void>(block.ids()); }));
}

}  // namespace
}  // namespace finetune
