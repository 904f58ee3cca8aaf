// SPDX-License-Identifier: MIT
#include "data/cache/token_block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");
static_assert(sizeof(Example::Answer) == 16, "answers are two numbers of 64 bits");

constexpr uint64_t kMagic = 0x31304b4c424b4f54;  // "TOKBLK01"
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPiece = TokenBlock::kPiece;
constexpr uint64_t kMost = uint64_t{1} << 40;  // limit of every count

// Words of 64 bits at the file's beginning. They are followed by the checksums, zeros up to
// kAlignment, and in the header's last word the checksum of all of these.
enum HeaderWord : size_t {
  kMagicWord,
  kHeaderBytesWord,
  kFileBytes,
  kKey,  // four words
  kNumber = kKey + 4,
  kRowsBegin,
  kRowsEnd,
  kSequences,
  kTokens,
  kChoices,
  kOutputs,
  kLongest,
  kTokenTypes,
  kColumnWords  // offset, width and count of each column
};

constexpr size_t kFixedWords = TokenBlock::kFixedWords;
static_assert(kFixedWords == kColumnWords + 3 * TokenBlock::kColumns);

enum Kind : size_t {
  kIdColumn,
  kEnds,
  kLabels,
  kMasks,
  kTypes,
  kClasses,
  kValues,
  kAnswers,
  kWords,
  kWordCounts,
  kExtra
};

uint64_t rounded_up(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

uint64_t header_size(uint64_t pieces) {
  return rounded_up((kFixedWords + pieces + 1) * sizeof(uint64_t), kAlignment);
}

// Assembles the columns of a file.
class ColumnWriter {
 public:
  template <class Value>
  void add(Kind kind, const Value* values, size_t count) {
    data_.resize(rounded_up(data_.size(), kAlignment));
    positions_[kind] = {data_.size(), sizeof(Value), count};
    if (count > 0) data_.append(reinterpret_cast<const char*>(values), count * sizeof(Value));
  }
  template <class Value>
  void add(Kind kind, const std::vector<Value>& values) {
    add(kind, values.data(), values.size());
  }

  // Returns the file: `words` completed with the columns' positions, checksums, columns.
  [[nodiscard]] std::string finish(std::vector<uint64_t> words) const {
    const uint64_t pieces = (data_.size() + kPiece - 1) / kPiece;
    const uint64_t header = header_size(pieces);
    words.resize(header / sizeof(uint64_t));
    words[kHeaderBytesWord] = header;
    words[kFileBytes] = header + data_.size();
    for (size_t kind = 0; kind < positions_.size(); ++kind) {
      const auto& [offset, width, count] = positions_[kind];
      words[kColumnWords + 3 * kind] = header + offset;
      words[kColumnWords + 3 * kind + 1] = width;
      words[kColumnWords + 3 * kind + 2] = count;
    }
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      const std::string_view bytes = std::string_view(data_).substr(piece * kPiece, kPiece);
      words[kFixedWords + piece] = hash_number(bytes.data(), bytes.size());
    }
    words.back() = hash_number(words.data(), header - sizeof(uint64_t));
    std::string file(reinterpret_cast<const char*>(words.data()), header);
    return file += data_;
  }

 private:
  std::string data_;
  std::array<std::array<uint64_t, 3>, TokenBlock::kColumns> positions_ = {};
};

// Adds ids in the smallest width that fits all of them.
void add_id_column(ColumnWriter& columns, const std::vector<int32_t>& ids) {
  const auto are_below = [&](int32_t limit) {
    return std::ranges::all_of(ids, [&](int32_t id) { return id >= 0 && id < limit; });
  };
  if (are_below(1 << 16)) {
    columns.add(kIdColumn, std::vector<uint16_t>(ids.begin(), ids.end()));
  } else if (are_below(PackedId::kLimit)) {
    std::vector<PackedId> packed(ids.size());
    std::ranges::transform(ids, packed.begin(), PackedId::of);
    columns.add(kIdColumn, packed);
  } else {
    columns.add(kIdColumn, ids);
  }
}

int64_t longest_of(const std::vector<int64_t>& offsets) {
  int64_t longest = 0;
  for (size_t i = 1; i < offsets.size(); ++i) {
    longest = std::max(longest, offsets[i] - offsets[i - 1]);
  }
  return longest;
}

}  // namespace

std::string encode_token_block(const TokenBlockPosition& position, const TokenContent& content,
                               std::string_view extra) {
  FT_CHECK(content.ids.size() <= std::numeric_limits<uint32_t>::max(), "a block is small");
  FT_CHECK(position.key.size() == 32, "a key has 32 digits");
  ColumnWriter columns;
  add_id_column(columns, content.ids);
  columns.add(kEnds, std::vector<uint32_t>(content.offsets.begin() + 1, content.offsets.end()));
  columns.add(kLabels, content.labels);
  columns.add(kMasks, content.masks);
  columns.add(kTypes, content.types);
  columns.add(kClasses, content.classes);
  columns.add(kValues, content.values);
  columns.add(kAnswers, content.answers);
  columns.add(kWords, content.words);
  columns.add(kWordCounts, content.word_counts);
  columns.add(kExtra, extra.data(), extra.size());
  std::vector<uint64_t> words(kFixedWords);
  words[kMagicWord] = kMagic;
  std::memcpy(&words[kKey], position.key.data(), position.key.size());
  const auto set = [&](HeaderWord word, int64_t value) {
    words[word] = static_cast<uint64_t>(value);
  };
  set(kNumber, position.number);
  set(kRowsBegin, position.rows_begin);
  set(kRowsEnd, position.rows_end);
  set(kSequences, static_cast<int64_t>(content.offsets.size()) - 1);
  set(kTokens, static_cast<int64_t>(content.ids.size()));
  set(kChoices, content.choices);
  set(kOutputs, content.outputs);
  set(kLongest, longest_of(content.offsets));
  const auto largest = std::ranges::max_element(content.types);
  set(kTokenTypes, largest == content.types.end() ? 1 : int64_t{*largest} + 1);
  return columns.finish(std::move(words));
}

TokenBlock::TokenBlock(std::string path, const TokenBlockLimits& limits)
    : path_(std::move(path)), limits_(limits), file_(path_) {
  read_header();
}

void TokenBlock::fail(const std::string& what) const {
  throw Error(ErrorKind::kData,
              "'" + path_ + "' " + what +
                  "; run the same command again, and what is missing is tokenised again");
}

void TokenBlock::read_header() {
  if (file_.size() < header_size(0)) fail("is truncated");
  const auto* words = reinterpret_cast<const uint64_t*>(file_.data());
  if (words[kMagicWord] != kMagic) fail("is no block of tokenised data that this version reads");
  if (words[kFileBytes] != file_.size()) fail("has another size than its header says");
  header_bytes_ = words[kHeaderBytesWord];
  if (header_bytes_ > file_.size() || header_bytes_ < header_size(0) ||
      header_bytes_ % kAlignment != 0) {
    fail("is damaged in its header");
  }
  checksum_ = words[header_bytes_ / sizeof(uint64_t) - 1];
  const uint64_t pieces = (file_.size() - header_bytes_ + kPiece - 1) / kPiece;
  if (header_bytes_ != header_size(pieces) ||
      checksum_ != hash_number(words, header_bytes_ - sizeof(uint64_t))) {
    fail("is damaged in its header");
  }
  pieces_ = static_cast<int64_t>(pieces);
  sums_ = words + kFixedWords;
  checked_ = std::make_unique<std::atomic<bool>[]>(pieces);
  for (size_t word = kNumber; word < kColumnWords; ++word) {
    if (words[word] > kMost) fail("holds a number that cannot be");
  }
  position_.key.assign(reinterpret_cast<const char*>(words + kKey), 32);
  const auto number = [&](HeaderWord word) { return static_cast<int64_t>(words[word]); };
  position_.number = number(kNumber);
  position_.rows_begin = number(kRowsBegin);
  position_.rows_end = number(kRowsEnd);
  sequences_ = number(kSequences);
  tokens_ = number(kTokens);
  choices_ = number(kChoices);
  outputs_ = number(kOutputs);
  longest_ = number(kLongest);
  token_types_ = number(kTokenTypes);
  if (choices_ < 1 || sequences_ % choices_ != 0 || position_.rows_begin > position_.rows_end ||
      outputs_ > (int64_t{1} << 20)) {
    fail("holds a number that cannot be");
  }
  for (size_t kind = 0; kind < kColumns; ++kind) {
    const uint64_t* column = words + kColumnWords + 3 * kind;
    read_column(kind, {.offset = column[0], .width = column[1], .count = column[2]});
  }
}

void TokenBlock::read_column(size_t kind, const Column& column) {
  constexpr std::array<uint64_t, kColumns> kWidths = {2, 4, 4, 1, 1, 4, 4, 16, 4, 8, 1};
  const auto tokens = static_cast<uint64_t>(tokens_);
  const auto samples = static_cast<uint64_t>(sequences_ / choices_);
  const std::array<uint64_t, kColumns> counts = {
      tokens,      static_cast<uint64_t>(sequences_),         tokens,  tokens, tokens,
      samples,     samples * static_cast<uint64_t>(outputs_), samples, tokens, samples,
      column.count};
  const bool is_needed = kind == kIdColumn || kind == kEnds;
  const bool fits_width =
      column.width == kWidths[kind] ||
      (kind == kIdColumn && (column.width == sizeof(PackedId) || column.width == sizeof(int32_t)));
  const bool fits_count = column.count == counts[kind] || (!is_needed && column.count == 0);
  if (!fits_width || !fits_count || column.offset % kAlignment != 0 ||
      column.offset < header_bytes_ || column.offset > file_.size() ||
      column.count > (file_.size() - column.offset) / column.width) {
    fail("holds a column that cannot be");
  }
  columns_[kind] = column;
}

void TokenBlock::check(int64_t number) const {
  const auto piece = static_cast<size_t>(number);
  if (checked_[piece].load(std::memory_order_acquire)) return;
  const uint64_t begin = header_bytes_ + piece * kPiece;
  const uint64_t end = std::min<uint64_t>(begin + kPiece, file_.size());
  if (!file_.is_whole(path_)) fail("was truncated while it was in use");
  if (hash_number(file_.data() + begin, end - begin) != sums_[piece]) {
    fail(format_text("is damaged at byte {} or up to {} bytes after it", begin, end - begin));
  }
  check_values(begin, end);
  checked_[piece].store(true, std::memory_order_release);
}

void TokenBlock::check_bytes(uint64_t begin, uint64_t end) const {
  if (begin == end) return;
  const auto last = static_cast<int64_t>((end - 1 - header_bytes_) / kPiece);
  for (auto piece = static_cast<int64_t>((begin - header_bytes_) / kPiece); piece <= last;
       ++piece) {
    check(piece);
  }
}

// Checks ranges: a checksum detects damage, but not a value that was wrong when written.
void TokenBlock::check_values(uint64_t begin, uint64_t end) const {
  const auto check_column = [&]<class Value>(Kind kind, int64_t least, int64_t limit, Value) {
    const Column& column = columns_[kind];
    const uint64_t from = std::max(begin, column.offset);
    const uint64_t to = std::min(end, column.offset + column.count * column.width);
    if (from >= to) return;
    // A 3-byte value that crosses a chunk boundary is checked with the chunk in which it ends.
    const uint64_t first = (from - column.offset) / sizeof(Value);
    const uint64_t after = (to - column.offset) / sizeof(Value);
    const auto* numbers = reinterpret_cast<const Value*>(file_.data() + column.offset);
    const std::span values(numbers + first, after - first);
    int64_t smallest = 0;
    int64_t largest = 0;
    for (const Value value : values) {
      smallest = std::min(smallest, int64_t{value});
      largest = std::max(largest, int64_t{value});
    }
    if (smallest < least || (limit > 0 && largest >= limit)) {
      fail(format_text("holds {}, which is no token or label of this run",
                       smallest < least ? smallest : largest));
    }
  };
  if (columns_[kIdColumn].width == sizeof(uint16_t)) {
    check_column(kIdColumn, 0, limits_.ids, uint16_t{});
  } else if (columns_[kIdColumn].width == sizeof(PackedId)) {
    check_column(kIdColumn, 0, limits_.ids, PackedId{});
  } else {
    check_column(kIdColumn, 0, limits_.ids, int32_t{});
  }
  check_column(kLabels, kIgnoredLabel, limits_.labels, int32_t{});
  check_column(kClasses, kIgnoredLabel, limits_.classes, int32_t{});
  check_column(kWords, -1, 0, int32_t{});
  check_column(kMasks, 0, 2, uint8_t{});
  check_column(kTypes, 0, token_types_, uint8_t{});
}

template <class Value>
std::span<const Value> TokenBlock::part(size_t kind, uint64_t begin, uint64_t count) const {
  const Column& column = columns_[kind];
  if (column.count == 0) return {};
  const uint64_t first = column.offset + begin * sizeof(Value);
  check_bytes(first, first + count * sizeof(Value));
  return {reinterpret_cast<const Value*>(file_.data() + first), count};
}

template <class Value>
std::span<const Value> TokenBlock::whole(size_t kind) const {
  return part<Value>(kind, 0, columns_[kind].count);
}

TokenSpan TokenBlock::ids(uint64_t begin, uint64_t count) const {
  if (columns_[kIdColumn].width == sizeof(uint16_t)) {
    return TokenSpan(part<uint16_t>(kIdColumn, begin, count));
  }
  if (columns_[kIdColumn].width == sizeof(PackedId)) {
    return TokenSpan(part<PackedId>(kIdColumn, begin, count));
  }
  return TokenSpan(part<int32_t>(kIdColumn, begin, count));
}

TokenBlock::Cut TokenBlock::cut(int64_t sequence) const {
  FT_CHECK(sequence >= 0 && sequence < sequences_, "sequence index out of range");
  const auto at = static_cast<uint64_t>(sequence);
  const std::span<const uint32_t> ends =
      part<uint32_t>(kEnds, at == 0 ? 0 : at - 1, at == 0 ? 1 : 2);
  const Cut found{.begin = at == 0 ? 0 : ends.front(), .end = ends.back()};
  if (found.begin > found.end || found.end > static_cast<uint64_t>(tokens_)) {
    fail("holds a sequence that cannot be");
  }
  return found;
}

int64_t TokenBlock::length(int64_t sequence) const {
  const Cut found = cut(sequence);
  return static_cast<int64_t>(found.end - found.begin);
}

TokenSpan TokenBlock::tokens(int64_t begin, int64_t end) const {
  FT_CHECK(begin <= end, "sequences in a row");
  if (begin == end) return {};
  const uint64_t first = cut(begin).begin;
  const uint64_t after = cut(end - 1).end;
  if (first > after) fail("holds a sequence that cannot be");
  return ids(first, after - first);
}

Example TokenBlock::get(int64_t sequence) const {
  const auto [begin, end] = cut(sequence);
  const uint64_t count = end - begin;
  const auto sample = static_cast<uint64_t>(sequence / choices_);
  const auto outputs = static_cast<uint64_t>(outputs_);
  Example example{.input_ids = ids(begin, count),
                  .labels = part<int32_t>(kLabels, begin, count),
                  .attention_mask = part<uint8_t>(kMasks, begin, count),
                  .token_type_ids = part<uint8_t>(kTypes, begin, count),
                  .label = {},
                  .values = part<float>(kValues, sample * outputs, outputs),
                  .answer = {}};
  example.words = part<int32_t>(kWords, begin, count);
  const std::span<const int64_t> words = part<int64_t>(kWordCounts, sample, 1);
  if (!words.empty()) example.word_count = words.front();
  const std::span<const int32_t> label = part<int32_t>(kClasses, sample, 1);
  if (!label.empty()) example.label = label.front();
  const std::span<const Example::Answer> answer = part<Example::Answer>(kAnswers, sample, 1);
  if (!answer.empty()) {
    const auto limit = static_cast<int64_t>(count);
    if (std::min(answer[0].start, answer[0].end) < 0 ||
        std::max(answer[0].start, answer[0].end) >= limit) {
      fail("holds an answer that cannot be");
    }
    example.answer = answer.front();
  }
  return example;
}

std::string_view TokenBlock::extra() const {
  const std::span<const char> bytes = whole<char>(kExtra);
  return {bytes.data(), bytes.size()};
}

TokenSpan TokenBlock::ids() const { return ids(0, columns_[kIdColumn].count); }
std::span<const uint32_t> TokenBlock::ends() const { return whole<uint32_t>(kEnds); }
std::span<const int32_t> TokenBlock::labels() const { return whole<int32_t>(kLabels); }
std::span<const uint8_t> TokenBlock::masks() const { return whole<uint8_t>(kMasks); }
std::span<const uint8_t> TokenBlock::types() const { return whole<uint8_t>(kTypes); }
std::span<const int32_t> TokenBlock::classes() const { return whole<int32_t>(kClasses); }
std::span<const float> TokenBlock::values() const { return whole<float>(kValues); }
std::span<const Example::Answer> TokenBlock::answers() const {
  return whole<Example::Answer>(kAnswers);
}

}  // namespace finetune
