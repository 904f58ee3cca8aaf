// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "finetune/base/mapped_file.h"
#include "finetune/data/token_dataset.h"

// One file of a tokenised cache: consecutive samples, column by column. All numbers are little
// endian and of fixed width, every column begins at a multiple of 64 bytes:
//
//   header    counts, the rows it was made of, the offset of each column
//   checksums XXH3-64 of each 256 KiB after the header, then of the header and these
//   columns   ids of 16 bits where all are below 65,536, of 24 where below 2^24, else of 32;
//             ends of the sequences; what else the task has
namespace finetune {

struct TokenBlockPosition {
  std::string key;         // 32 digits: the cache that it belongs to
  int64_t number = 0;      // of the block
  int64_t rows_begin = 0;  // range of rows from which it was made
  int64_t rows_end = 0;
};

// Exclusive upper limits of the values in a block; 0: no limit.
struct TokenBlockLimits {
  int64_t ids = 0;
  int64_t labels = 0;
  int64_t classes = 0;
};

// Returns the file's content. `extra` is stored unchanged. Requires: content that is valid for
// TokenDataset, with fewer than 2^32 tokens.
[[nodiscard]] std::string encode_token_block(const TokenBlockPosition& position,
                                             const TokenContent& content, std::string_view extra);

// A memory-mapped block. The header is checked when it is opened; the rest, 256 KiB at a time, when
// it is first read. Thread-safe for reading.
class TokenBlock {
 public:
  // Throws Error(kData) if the file is not a block, truncated or corrupt, Error(kIo).
  TokenBlock(std::string path, const TokenBlockLimits& limits);

  [[nodiscard]] const TokenBlockPosition& position() const { return position_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t sequences() const { return sequences_; }
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] int64_t choices() const { return choices_; }
  [[nodiscard]] int64_t outputs() const { return outputs_; }
  [[nodiscard]] int64_t samples() const { return sequences_ / choices_; }
  [[nodiscard]] int64_t longest() const { return longest_; }
  [[nodiscard]] int64_t token_types() const { return token_types_; }  // 1 + the largest
  [[nodiscard]] size_t bytes() const { return file_.size(); }
  [[nodiscard]] uint64_t checksum() const { return checksum_; }  // the header's

  // Both verify the checksums of what they read and throw Error(kData) for corrupt data.
  [[nodiscard]] int64_t length(int64_t sequence) const;
  // label, values and answer are those of the sample to which `sequence` belongs.
  [[nodiscard]] Example get(int64_t sequence) const;
  [[nodiscard]] std::string_view extra() const;
  // Checks piece `number` of pieces(): 256 KiB of the file.
  void check(int64_t number) const;
  // Releases the pages that were read; the next read maps them again.
  void release() const { file_.release(); }
  [[nodiscard]] int64_t pieces() const { return pieces_; }

  // Returns the ids of the sequences [begin, end), concatenated.
  [[nodiscard]] TokenSpan tokens(int64_t begin, int64_t end) const;

  // Complete columns, checked; empty if the task has none.
  [[nodiscard]] TokenSpan ids() const;
  [[nodiscard]] std::span<const uint32_t> ends() const;
  [[nodiscard]] std::span<const int32_t> labels() const;
  [[nodiscard]] std::span<const uint8_t> masks() const;
  [[nodiscard]] std::span<const uint8_t> types() const;
  [[nodiscard]] std::span<const int32_t> classes() const;
  [[nodiscard]] std::span<const float> values() const;
  [[nodiscard]] std::span<const Example::Answer> answers() const;

  static constexpr size_t kColumns = 11;
  static constexpr size_t kFixedWords = 16 + 3 * kColumns;  // of 64 bits, before the checksums
  static constexpr uint64_t kPiece = uint64_t{256} << 10;

 private:
  struct Column {
    uint64_t offset = 0;
    uint64_t width = 0;
    uint64_t count = 0;
  };

  void read_header();
  void read_column(size_t kind, const Column& column);
  [[noreturn]] void fail(const std::string& what) const;
  void check_bytes(uint64_t begin, uint64_t end) const;
  void check_values(uint64_t begin, uint64_t end) const;
  template <class Value>
  [[nodiscard]] std::span<const Value> part(size_t kind, uint64_t begin, uint64_t count) const;
  template <class Value>
  [[nodiscard]] std::span<const Value> whole(size_t kind) const;
  [[nodiscard]] TokenSpan ids(uint64_t begin, uint64_t count) const;
  struct Cut {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  [[nodiscard]] Cut cut(int64_t sequence) const;

  std::string path_;
  TokenBlockLimits limits_;
  MappedFile file_;
  TokenBlockPosition position_;
  int64_t sequences_ = 0;
  int64_t tokens_ = 0;
  int64_t choices_ = 1;
  int64_t outputs_ = 0;
  int64_t longest_ = 0;
  int64_t token_types_ = 1;
  uint64_t checksum_ = 0;
  uint64_t header_bytes_ = 0;
  int64_t pieces_ = 0;
  const uint64_t* sums_ = nullptr;
  std::array<Column, kColumns> columns_ = {};
  std::unique_ptr<std::atomic<bool>[]> checked_;  // for each piece
};

}  // namespace finetune
