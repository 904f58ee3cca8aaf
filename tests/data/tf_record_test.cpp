// SPDX-License-Identifier: MIT
#include "finetune/data/tf_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/readers/byte_reader.h"
#include "finetune/base/crc32c.h"
#include "finetune/base/error.h"
#include "finetune/data/tf_example.h"
#include "support/golden.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

TfRecordFile open(const std::string& bytes) {
  return TfRecordFile(std::make_unique<MemoryFile>(bytes), "a.tfrecord");
}

// Reads all of a file and returns the error; "" if there is none.
std::string fault_of(const std::string& bytes) {
  try {
    const TfRecordFile file = open(bytes);
    for (int64_t i = 0; i < file.size(); ++i) static_cast<void>(file.read(i));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "";
}

std::string number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xff);
  return text;
}

TEST(TfRecord, IsReadAsItWasWritten) {
  const std::string large(100000, 'x');
  const TfRecordFile file = open(tf_record("one") + tf_record("") + tf_record(large));
  ASSERT_EQ(file.size(), 3);
  EXPECT_EQ(file.read(2), large);
  EXPECT_EQ(file.read(0), "one");
  EXPECT_EQ(file.read(1), "");
  EXPECT_EQ(file.position(1), "a.tfrecord: record 2 at byte 19");
}

// The bytes that TensorFlow's TFRecordWriter writes for b"finetune".
TEST(TfRecord, HasTensorFlowsBytes) {
  const std::string length = number(8, 8);
  EXPECT_EQ(tf_record("finetune"), length + number(masked_crc32c(length), 4) + "finetune" +
                                       number(masked_crc32c("finetune"), 4));
}

TEST(TfRecord, NamesWhereItIsDamagedWhateverByteIsFlippedOrMissing) {
  const std::string whole = tf_record("one") + tf_record("number two");
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string flipped = whole;
    flipped[byte] = static_cast<char>(flipped[byte] ^ 0x10);
    EXPECT_GOLDEN(fault_of(flipped)) << byte;
    // Truncation between records gives a valid, shorter file.
    if (byte == 0 || byte == 19) continue;
    EXPECT_GOLDEN(fault_of(whole.substr(0, byte))) << byte;
  }
}

TEST(TfRecord, BelievesNoLengthBeforeItsChecksumAndNoneBeyondTheFile) {
  const auto with_length = [](uint64_t value) {
    const std::string length = number(value, 8);
    return length + number(masked_crc32c(length), 4) + "data and so on";
  };
  EXPECT_THAT(fault_of(number(uint64_t{1} << 62, 8) + "0000"), HasSubstr("checksum"));
  EXPECT_GOLDEN(fault_of(with_length(UINT64_MAX)));
  EXPECT_THAT(fault_of(with_length(TfRecordFile::kMaxRecord + 1)), HasSubstr("64 MiB"));
  EXPECT_GOLDEN(fault_of(with_length(TfRecordFile::kMaxRecord)));
  EXPECT_GOLDEN(fault_of(with_length(11)));
  EXPECT_GOLDEN(fault_of("just some text, as in any file"));
}

TEST(TfRecord, IsKnownByItsName) {
  for (const char* path : {"a.tfrecord", "x/b.tfrecords", "c.tfrecord-00001-of-00010"}) {
    EXPECT_TRUE(is_tf_record(path)) << path;
  }
  for (const char* path : {"a.txt", "a.tfrecord/b.txt", "tfrecord", "a.tfrecord.unfinished"}) {
    EXPECT_FALSE(is_tf_record(path)) << path;
  }
}

TEST(TfExample, IsReadAsItWasWritten) {
  TfExample example;
  example.emplace("ids", std::vector<int64_t>{0, 1, 300, -1, INT64_MIN, INT64_MAX});
  example.emplace("none", std::vector<int64_t>{});
  example.emplace("texts", std::vector<std::string>{"a", "", std::string("\xFF\0", 2)});
  example.emplace("weights", std::vector<float>{1.0F, -0.5F});
  EXPECT_EQ(decode_tf_example(encode_tf_example(example), "a"), example);
}

// The bytes that the protocol buffers library writes for Example(features=Features(feature={"a":
// Feature(int64_list=Int64List(value=[1, 300]))})).
TEST(TfExample, HasProtocolBuffersBytes) {
  TfExample example;
  example.emplace("a", std::vector<int64_t>{1, 300});
  const std::string bytes(
      "\x0a\x0e\x0a\x0c\x0a\x01"
      "a"
      "\x12\x07\x1a\x05\x0a\x03\x01\xac\x02",
      16);
  EXPECT_EQ(encode_tf_example(example), bytes);
}

TEST(TfExample, TakesPlainListsAndPassesOverTheUnknown) {
  // int64_list { value: 1 value: 300 } in two fields; before it the unknown field 9 of Example (a
  // varint), after it that of Feature (bytes).
  const std::string bytes(
      "\x48\x05\x0a\x10\x0a\x0e\x0a\x01"
      "a"
      "\x12\x09\x1a\x05\x08\x01\x08\xac\x02\x4a\x00",
      20);
  EXPECT_EQ(std::get<std::vector<int64_t>>(decode_tf_example(bytes, "x").at("a")),
            (std::vector<int64_t>{1, 300}));
}

TEST(TfExample, RefusesWhatIsNoMessage) {
  const auto fault = [](const std::string& bytes) {
    try {
      static_cast<void>(decode_tf_example(bytes, "a.tfrecord: record 1"));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_GOLDEN(fault("\x0a\x7f"));
  EXPECT_GOLDEN(fault("\x0b"));
  EXPECT_GOLDEN(fault(std::string(10, '\xff')));
  EXPECT_GOLDEN(fault("\x0a\x04\x0a\x02\x0a\x05"));
  TfExample example;
  example.emplace("ids", std::vector<int64_t>{5, 1000, 70000});
  const std::string whole = encode_tf_example(example);
  for (size_t size = 1; size < whole.size(); ++size) {
    EXPECT_NE(fault(whole.substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace finetune::testing
