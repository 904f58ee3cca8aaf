// SPDX-License-Identifier: MIT
#include "tokenizer/regex/text_cutter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tokenizer/unicode/text_scanner.h"

namespace finetune::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces(const TextCutter& cutter, std::string_view text) {
  std::vector<uint32_t> ends;
  cutter.cut(text, ends);
  std::vector<std::string> result;
  size_t begin = 0;
  for (const size_t end : ends) {
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

std::vector<std::string> split(std::string_view text) { return pieces(gpt2_cutter(), text); }

TEST(Gpt2Cutter, KeepsASpaceWithTheWordBehindIt) {
  EXPECT_THAT(split("Hello  big world"), ElementsAre("Hello", " ", " big", " world"));
}

TEST(Gpt2Cutter, CutsContractions) {
  EXPECT_THAT(split("we'll they've I'D x's"),
              ElementsAre("we", "'ll", " they", "'ve", " I", "'", "D", " x", "'s"));
}

TEST(Gpt2Cutter, SeparatesLettersNumbersAndTheRest) {
  EXPECT_THAT(split("a1½!? 朝3"), ElementsAre("a", "1½", "!?", " 朝", "3"));
}

TEST(Gpt2Cutter, GivesTheLastOfSeveralSpacesToWhatFollows) {
  EXPECT_THAT(split("\n\n x \t"), ElementsAre("\n\n", " x", " \t"));
  EXPECT_THAT(split("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
}

TEST(Gpt2Cutter, HasNoPieceForAnEmptyText) { EXPECT_TRUE(split("").empty()); }

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

std::vector<std::string> by_regex(const char* regex, std::string_view text) {
  const auto cutter = find_cutter(regex);
  return cutter ? pieces(*cutter, text) : std::vector<std::string>{"no matcher"};
}

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

TEST(FindCutter, CutsAsLlama3Does) {
  EXPECT_THAT(by_regex(kLlama3, "I'LL pay $12345.\n\n  (now)  x\r\n"),
              ElementsAre("I", "'LL", " pay", " $", "123", "45", ".\n\n", " ", " (", "now", ")",
                          " ", " x", "\r\n"));
}

TEST(FindCutter, CutsAsTekkenDoes) {
  EXPECT_THAT(by_regex(kTekken, "HTTPServer getURLs 12/\nÉTÉs"),
              ElementsAre("HTTPServer", " get", "URLs", " ", "1", "2", "/\n", "ÉTÉs"));
}

TEST(FindCutter, KnowsNoOtherExpression) {
  EXPECT_EQ(find_cutter(std::string(kLlama3) + "|a"), nullptr);
  EXPECT_EQ(find_cutter(""), nullptr);
}

TEST(FindCutter, LeavesWhatDoesNotMatchTogether) {
  EXPECT_THAT(by_regex(R"(\p{N}{1,3})", "ab 1234cd"), ElementsAre("ab ", "123", "4", "cd"));
}

}  // namespace
}  // namespace finetune::tokenizer
