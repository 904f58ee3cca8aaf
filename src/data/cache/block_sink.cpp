// SPDX-License-Identifier: MIT
#include "data/cache/block_sink.h"

#include <utility>

#include "data/cache/cache_failure.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"

namespace finetune {

std::string token_block_name(int64_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return "block-" + digits;
}

// Returns the size of all files that may be blocks.
uint64_t BlockSink::bytes_there() const {
  uint64_t bytes = 0;
  for (int64_t number = 0;; ++number) {
    const std::string path = join_path(folder_, token_block_name(number));
    if (FileSystem::local().type(path) != FileType::kFile) return bytes;
    bytes += FileSystem::local().open(path)->size();
  }
}

int64_t BlockSink::resume(const TokenBlockLimits& limits, const ShowStep& show) {
  LongStep step = LongStep::of_bytes(
      {.phase = "check", .doing = "checking what was tokenised before"}, bytes_there(), show);
  for (;;) {
    const std::string path = join_path(folder_, token_block_name(std::ssize(paths_)));
    try {
      const TokenBlock block(path, limits);
      const TokenBlockPosition& position = block.position();
      if (position.key != key_ || position.number != std::ssize(paths_) ||
          position.rows_begin != rows_) {
        return std::ssize(paths_);
      }
      for (int64_t piece = 0; piece < block.pieces(); ++piece) {
        block.check(piece);
        step.add_bytes(TokenBlock::kPiece);
      }
      rows_ = position.rows_end;
      samples_ += block.samples();
      note(path, block);
    } catch (const Error&) {  // missing or corrupt: write it again
      return std::ssize(paths_);
    }
  }
}

void BlockSink::take(TokenContent content, int64_t rows, std::string extra) {
  const TokenBlockPosition position{
      .key = key_, .number = std::ssize(paths_), .rows_begin = rows_, .rows_end = rows_ + rows};
  rows_ += rows;
  if (content.offsets.size() == 1 && extra.empty()) return;
  // A column that only some samples have is dropped.
  const int64_t samples = (std::ssize(content.offsets) - 1) / content.choices;
  if (std::ssize(content.values) != samples * content.outputs) content.values = {};
  if (std::ssize(content.answers) != samples) content.answers = {};
  const std::string path = join_path(folder_, token_block_name(position.number));
  const std::string file = encode_token_block(position, content, extra);
  content = {};
  on_cache([&] { FileSystem::local().write_atomically(path, file); });
  samples_ += samples;
  note(path, TokenBlock(path, {}));
}

void BlockSink::note(const std::string& path, const TokenBlock& block) {
  paths_.push_back(path);
  blocks_.push_back({.bytes = block.bytes(), .checksum = block.checksum()});
}

}  // namespace finetune
