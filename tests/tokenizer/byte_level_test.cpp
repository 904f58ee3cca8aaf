// SPDX-License-Identifier: MIT
#include "tokenizer/byte_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace finetune::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> pieces;
  Gpt2Splitter splitter(text);
  while (const auto piece = splitter.next()) pieces.emplace_back(*piece);
  return pieces;
}

TEST(Gpt2Splitter, KeepsASpaceWithTheWordBehindIt) {
  EXPECT_THAT(split("Hello  big world"), ElementsAre("Hello", " ", " big", " world"));
}

TEST(Gpt2Splitter, CutsContractions) {
  EXPECT_THAT(split("we'll they've I'D x's"),
              ElementsAre("we", "'ll", " they", "'ve", " I", "'", "D", " x", "'s"));
}

TEST(Gpt2Splitter, SeparatesLettersNumbersAndTheRest) {
  EXPECT_THAT(split("a1½!? 朝3"), ElementsAre("a", "1½", "!?", " 朝", "3"));
}

TEST(Gpt2Splitter, GivesTheLastOfSeveralSpacesToWhatFollows) {
  EXPECT_THAT(split("\n\n x \t"), ElementsAre("\n\n", " x", " \t"));
  EXPECT_THAT(split("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
}

TEST(Gpt2Splitter, HasNoPieceForAnEmptyText) { EXPECT_TRUE(split("").empty()); }

TEST(EndOfAsciiLetters, IsWhereTheFirstOtherByteIs) {
  for (size_t before = 0; before < 20; ++before) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text(20, before % 2 == 0 ? 'z' : 'A');
      text[before] = static_cast<char>(byte);
      const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
      for (const size_t from : {size_t{0}, before / 2, before}) {
        EXPECT_EQ(end_of_ascii_letters(text, from), letter ? text.size() : before) << byte;
      }
    }
  }
}

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
