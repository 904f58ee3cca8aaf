// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/byte_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace finetune::tokenizer {
namespace {

TEST(CharClass, KnowsWhatUnicode15DoesNot) {
  EXPECT_EQ(char_class(0x1C89), CharClass::kLetter);
  EXPECT_EQ(char_class(0x323AF), CharClass::kLetter);
  EXPECT_EQ(char_class(0x85), CharClass::kSpace);
  EXPECT_EQ(char_class(0x200B), CharClass::kOther);
  EXPECT_EQ(char_class(0x2167), CharClass::kNumber);
  EXPECT_EQ(char_class(0x10FFFF), CharClass::kOther);
}

TEST(ByteChars, GiveEveryByteACharacterAndBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::string back;
  ASSERT_TRUE(append_token_bytes(to_byte_chars(bytes), back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(to_byte_chars(" \n"), "ĠĊ");
}

TEST(ByteChars, RefuseCharactersThatStandForNoByte) {
  std::string bytes = "x";
  EXPECT_FALSE(append_token_bytes("a朝", bytes));
  EXPECT_EQ(bytes, "x");
}

}  // namespace
}  // namespace finetune::tokenizer
