// SPDX-License-Identifier: MIT
#include "tokenizer/regex/compiled_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> matches(const char* regex, std::string_view text) {
  std::vector<std::string> found;
  for (const auto& match : Regex(regex, "tokenizer.json").find_all(text)) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

std::string error_of(const std::string& regex, const std::string& text) {
  try {
    static_cast<void>(Regex(regex, "/model/tokenizer.json").find_all(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "";
}

TEST(Regex, FindsWhatTheTokenizersPackageFinds) {
  EXPECT_THAT(matches(R"(\p{Lu}\p{Ll}*|\d{2,})", "Ab Éc 1 234"), ElementsAre("Ab", "Éc", "234"));
  EXPECT_THAT(matches("(?i:'s|'LL)", "x'S 'll '\xC5\xBF"), ElementsAre("'S", "'ll", "'\xC5\xBF"));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\S+)", "a  b "), ElementsAre("a", " ", "b", " "));
  EXPECT_THAT(matches("(?<=a)b|c{,2}d", "ab b ccd"), ElementsAre("b", "ccd"));
}

TEST(Regex, KnowsTheUnicodeVersionOfThePackage) {
  EXPECT_THAT(matches(R"(\p{L})", "\xE1\xB2\x89"), ElementsAre("\xE1\xB2\x89"));  // U+1C89
  EXPECT_THAT(matches(R"(\s)", "\xE1\xA0\x8E"), ElementsAre());                   // U+180E
}

TEST(Regex, NamesFileAndExpressionWhereItIsNotSupported) {
  for (const char* regex : {"(", "[a&&b]", R"(\p{Han})", R"((a)\1)", "(?i)a", "a*", "(?:a?)+"}) {
    EXPECT_GOLDEN(error_of(regex, "a")) << regex;
  }
  EXPECT_GOLDEN(error_of("(?:\\p{L}{1,999}){1,999}", "a"));
}

// Exponential time, polynomial time by nested or adjacent repetition, and quadratic time by
// scanning to the end from every position.
TEST(Regex, EndsWhereMatchingExplodes) {
  const std::string text(20'000, 'a');
  // No required letter is missing in the text, which PCRE2 would detect at once.
  for (const char* regex :
       {"(?:a|a)+[bc]", "(?:a+)+[bc]", "(?:a+a+)+[bc]", "a*a*a*a*a*a*[bc]", "a+?a+?a+?[bc]",
        "(?:.*.*.*)[=x]", "(?=(?:a*a*)[bc])a", "(?:a{1,100}){1,100}[bc]", "(?:a|aa|aaa)+?[bc]"}) {
    EXPECT_GOLDEN(error_of(regex, text)) << regex;
  }
}

TEST(Regex, MatchesLongTexts) {
  const std::string text(100'000, 'a');
  EXPECT_EQ(matches("(?:a|b)+", text).front().size(), text.size());
  EXPECT_EQ(matches("a+", text).front().size(), text.size());
}

}  // namespace
}  // namespace finetune::tokenizer
