// SPDX-License-Identifier: MIT
#include "finetune/tensor/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"
#include "support/memory_file.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryFile;
using testing::message_of;

std::string file_with(const std::string& header, size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + std::string(data_bytes, '\0');
}

SafetensorsHeader parse(const std::string& bytes) {
  return read_safetensors_header(MemoryFile(bytes), "model.safetensors");
}

std::string rejection(const std::string& header, size_t data_bytes) {
  return message_of<Error>([&] { (void)parse(file_with(header, data_bytes)); });
}

std::string tensor(const std::string& name, const std::string& shape, const std::string& offsets,
                   const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirData) {
  const SafetensorsHeader header =
      parse(file_with("{\"__metadata__\":{\"format\":\"pt\"}," + tensor("b", "[2,1]", "[4,12]") +
                          "," + tensor("a", "[1]", "[0,4]") + "}  ",
                      12));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_THAT(header.tensors[1].shape, ElementsAre(2, 1));
  EXPECT_EQ(header.tensors[1].bytes, 8U);
  EXPECT_EQ(header.tensors[1].offset, header.tensors[0].offset + 4);
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, AcceptsScalarsAndEmptyTensors) {
  EXPECT_EQ(parse(file_with("{" + tensor("s", "[]", "[0,4]") + "}", 4)).tensors.size(), 1U);
  EXPECT_EQ(parse(file_with("{" + tensor("s", "[0,7]", "[0,0]") + "}", 0)).tensors.size(), 1U);
  EXPECT_EQ(parse(file_with("{}", 0)).tensors.size(), 0U);
}

struct Hostile {
  const char* what;
  std::string header;
  size_t data_bytes;
};

TEST(SafetensorsHeader, RefusesWhatTheReferenceRefuses) {
  const std::vector<Hostile> cases = {
      {"overlap", "{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[2]", "[4,12]") + "}", 12},
      {"overlap with as many bytes unused",
       "{" + tensor("a", "[2]", "[0,8]") + "," + tensor("b", "[1]", "[4,8]") + "}", 12},
      {"same place", "{" + tensor("a", "[1]", "[0,4]") + "," + tensor("b", "[1]", "[0,4]") + "}",
       4},
      {"hole", "{" + tensor("a", "[1]", "[0,4]") + "," + tensor("b", "[1]", "[8,12]") + "}", 12},
      {"not from the start", "{" + tensor("a", "[1]", "[4,8]") + "}", 8},
      {"trailing bytes", "{" + tensor("a", "[1]", "[0,4]") + "}", 5},
      {"truncated", "{" + tensor("a", "[2]", "[0,8]") + "}", 7},
      {"size differs from shape", "{" + tensor("a", "[3]", "[0,8]") + "}", 8},
      {"overflow", "{" + tensor("a", "[4194305,4194305,211106198978564]", "[0,4]") + "}", 4},
      {"end before begin", "{" + tensor("a", "[1]", "[4,0]") + "}", 4},
      {"negative dimension", "{" + tensor("a", "[-1]", "[0,4]") + "}", 4},
      {"fractional dimension", "{" + tensor("a", "[1.0]", "[0,4]") + "}", 4},
      {"dimension beyond 64 bits", "{" + tensor("a", "[18446744073709551616]", "[0,4]") + "}", 4},
      {"dimension beyond 63 bits", "{" + tensor("a", "[9223372036854775808,0]", "[0,0]") + "}", 0},
      {"duplicate inner key",
       "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
      {"unknown type", "{" + tensor("a", "[1]", "[0,4]", "F31") + "}", 4},
      {"metadata that is no string", "{\"__metadata__\":{\"a\":1}}", 0},
      {"nested metadata", "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0},
      {"deep nesting", std::string(200, '['), 0},
      {"bad UTF-8", "{" + tensor("\xff", "[1]", "[0,4]") + "}", 4},
      {"NaN", "{" + tensor("a", "[NaN]", "[0,4]") + "}", 4},
      {"three offsets", "{" + tensor("a", "[1]", "[0,4,4]") + "}", 4},
      {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
      {"no JSON", "{\"a\"", 4},
      {"something after the object", "{}{}", 0},
      {"an array", "[]", 0},
      {"a tensor that is a number", "{\"a\":1}", 0},
      {"a shape that is a string", "{" + tensor("a", "\"[1]\"", "[0,4]") + "}", 4},
  };
  for (const Hostile& hostile : cases) {
    EXPECT_THROW((void)parse(file_with(hostile.header, hostile.data_bytes)), Error) << hostile.what;
  }
}

TEST(SafetensorsHeader, RefusesWhatTheReferenceLetsPass) {
  std::string dimensions = "[1";
  for (int i = 0; i < 8; ++i) dimensions += ",1";
  const std::vector<Hostile> cases = {
      {"duplicate names",
       "{" + tensor("a", "[1]", "[0,4]") + "," + tensor("a", "[1]", "[4,8]") + "}", 8},
      {"leading space", " {" + tensor("a", "[1]", "[0,4]") + "}", 4},
      {"other padding", "{" + tensor("a", "[1]", "[0,4]") + "}\n", 4},
      {"unknown inner key",
       "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":\"\"}}", 4},
      {"NUL in a name", "{" + tensor("a\\u0000", "[1]", "[0,4]") + "}", 4},
      {"empty name", "{" + tensor("", "[1]", "[0,4]") + "}", 4},
      {"long name", "{" + tensor(std::string(513, 'a'), "[1]", "[0,4]") + "}", 4},
      {"nine dimensions", "{" + tensor("a", dimensions + "]", "[0,4]") + "}", 4},
      {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0},
  };
  for (const Hostile& hostile : cases) {
    EXPECT_THROW((void)parse(file_with(hostile.header, hostile.data_bytes)), Error) << hostile.what;
  }
}

TEST(SafetensorsHeader, ComparesTheHeadersLengthWithTheFileBeforeReadingIt) {
  std::string huge(16, '\x7f');
  EXPECT_THAT(message_of<Error>([&] { (void)parse(huge); }), HasSubstr("claims"));
  // Longer than half the file and than 1 MB.
  const std::string padded = "{}" + std::string(3'000'000, ' ');
  EXPECT_THAT(rejection(padded, 0), HasSubstr("claims"));
  EXPECT_THROW((void)parse(""), Error);
  EXPECT_THROW((void)parse(std::string(9, '\0')), Error);
}

TEST(SafetensorsHeader, NamesFileTensorAndReason) {
  const std::string message = rejection("{" + tensor("encoder.bias", "[3]", "[0,8]") + "}", 8);
  EXPECT_GOLDEN(message);
}

TEST(SafetensorsHeader, ThrowsForEveryCutAndSurvivesEveryFlippedByte) {
  const std::string good =
      file_with("{" + tensor("a", "[1]", "[0,4]") + "," + tensor("b", "[2]", "[4,12]") + "}", 12);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW((void)parse(good.substr(0, size)), Error) << size;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      try {
        (void)parse(damaged);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
      }
    }
  }
}

}  // namespace
}  // namespace finetune
