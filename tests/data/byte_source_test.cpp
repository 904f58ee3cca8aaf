// SPDX-License-Identifier: MIT
#include "data/readers/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/data/data_files.h"
#include "support/golden.h"
#include "support/memory_file.h"
#include "support/packing.h"

namespace finetune {
namespace {

using testing::gzip;
using testing::MemoryFile;
using testing::message_of;
using testing::TemporaryFolder;
using testing::zstandard;

std::string text_of(size_t size) {
  std::string text;
  for (uint64_t i = 1; text.size() < size; ++i) text += std::to_string(i * i * 2654435761U) + "\n";
  text.resize(size);
  return text;
}

std::string content_of(const std::string& bytes, const std::string& name,
                       size_t at_once = size_t{1} << 20) {
  const auto source = read_bytes(std::make_unique<MemoryFile>(bytes), name);
  EXPECT_EQ(source->size(), bytes.size());
  std::string content;
  std::string piece(at_once, '\0');
  uint64_t last = 0;
  while (const size_t count = source->read(piece.data(), piece.size())) {
    content.append(piece, 0, count);
    EXPECT_GE(source->offset(), last);
    last = source->offset();
  }
  EXPECT_EQ(source->offset(), bytes.size());
  return content;
}

struct Packing {
  std::string ending;
  std::string (*pack)(const std::string&);
};

class PackedSource : public ::testing::TestWithParam<Packing> {
 protected:
  [[nodiscard]] std::string name() const { return "rows.jsonl" + GetParam().ending; }
  [[nodiscard]] static std::string pack(const std::string& content) {
    return GetParam().pack(content);
  }
};

TEST_P(PackedSource, HoldsTheContentWhateverIsReadAtOnce) {
  const std::string content = text_of(3'000'001);
  for (const size_t at_once : {size_t{997}, size_t{65'536}, size_t{4'000'000}}) {
    EXPECT_TRUE(content_of(pack(content), name(), at_once) == content) << at_once;
  }
  EXPECT_EQ(content_of(pack("x"), "ROWS" + GetParam().ending, 1), "x");
  EXPECT_EQ(content_of(pack(""), name()), "");
}

TEST_P(PackedSource, GoesOnWithWhatIsAppended) {
  EXPECT_EQ(content_of(pack("a\nb\n") + pack("") + pack("c\n"), name()), "a\nb\nc\n");
}

TEST_P(PackedSource, SaysThatItEndsTooSoon) {
  const std::string packed = pack(text_of(5000));
  for (size_t size = 1; size < packed.size(); size += size < 64 ? 1 : 61) {
    EXPECT_GOLDEN(message_of<Error>([&] { content_of(packed.substr(0, size), name()); })) << size;
  }
}

// Bytes that do not affect the content (a time, the system's name) may change.
TEST_P(PackedSource, NeverGivesOutDamagedContentAsWhole) {
  const std::string content = text_of(3000);
  const std::string packed = pack(content);
  int refused = 0;
  for (size_t at = 0; at < packed.size(); ++at) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    try {
      const auto source = read_bytes(std::make_unique<MemoryFile>(damaged), name());
      std::string read(10'000, '\0');
      size_t size = 0;
      while (const size_t count = source->read(read.data() + size, read.size() - size)) {
        size += count;
      }
      EXPECT_TRUE(read.substr(0, size) == content) << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(packed.size()) - 12);
}

TEST_P(PackedSource, SaysThatItIsNamedWrongly) {
  EXPECT_GOLDEN(message_of<Error>([&] { content_of("{\"text\": \"plain\"}\n", name()); }));
}

// The content is read at once, so nothing was returned before the damage is found.
TEST_P(PackedSource, SaysThatItIsDamagedThoughItIsShort) {
  std::string packed = pack(text_of(3000));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x40);
  EXPECT_GOLDEN(message_of<Error>([&] { content_of(packed, name()); }));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PackedSource,
                         ::testing::Values(Packing{".gz", gzip}, Packing{".zst", zstandard}),
                         [](const auto& of) { return of.param.ending.substr(1); });

TEST(ByteSource, TakesZerosBehindGzipAsPadding) {
  EXPECT_EQ(content_of(gzip("a") + std::string(600, '\0'), "a.gz"), "a");
}

TEST(ByteSource, LeavesOtherFilesAsTheyAre) {
  EXPECT_EQ(content_of(gzip("a"), "a.txt"), gzip("a"));
}

TEST(ByteSource, IsWhatEveryReaderOfRowsReads) {
  const TemporaryFolder folder;
  const std::string csv = "text,label\n\"a\nb\",1\nc,2\n";
  const std::string json = "[{\"a\": 1}, {\"a\": 2}, {\"a\": 3}]";
  for (const auto& [name, content, rows] :
       std::vector<std::tuple<std::string, std::string, int64_t>>{
           {"rows.csv", csv, 2},
           {"rows.json", json, 3},
           {"rows.txt", "a\n\nb", 3},
           {"rows.jsonl", "{}\n{}\n", 2},
           {"rows.conll", "a O\n\nb O", 2}}) {
    EXPECT_EQ(count_rows({folder.write(name + ".gz", gzip(content))}, "train_file"), rows) << name;
    EXPECT_EQ(count_rows({folder.write(name + ".zst", zstandard(content))}, "train_file"), rows);
  }
}

}  // namespace
}  // namespace finetune
