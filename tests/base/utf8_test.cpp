// SPDX-License-Identifier: MIT
#include "finetune/base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace finetune::utf8 {
namespace {

using namespace std::string_literals;

TEST(Utf8, FindsNothingWrongWithWellFormedText) {
  for (const std::string& text :
       {""s, "a"s, "\0b"s, "\x7F"s, "\xC2\x80"s, "\xDF\xBF"s, "\xE0\xA0\x80"s, "\xED\x9F\xBF"s,
        "\xEE\x80\x80"s, "\xEF\xBF\xBF"s, "\xF0\x90\x80\x80"s, "\xF4\x8F\xBF\xBF"s, "ĉu 地図 😀"s}) {
    EXPECT_EQ(find_invalid(text), std::string_view::npos) << text;
  }
}

TEST(Utf8, FindsTheFirstIllFormedByte) {
  for (const std::string& bad :
       {"\x80"s, "\xBF"s, "\xC0\x80"s, "\xC1\xBF"s, "\xE0\x9F\xBF"s, "\xED\xA0\x80"s,
        "\xED\xBF\xBF"s, "\xF0\x8F\xBF\xBF"s, "\xF4\x90\x80\x80"s, "\xF5\x80\x80\x80"s, "\xFE"s,
        "\xFF"s, "\xC2"s, "\xE1\x80"s, "\xF1\x80\x80"s, "\xC2 "s, "\xE1\x80 "s, "\xF1\x80\x80 "s}) {
    EXPECT_EQ(find_invalid("ĉa" + bad), 3U);
    EXPECT_EQ(find_invalid("ĉa" + bad + "ok"), 3U);
  }
}

TEST(Utf8, DecodesWhatItAppends) {
  const std::u32string points = U"a\u0080\u07FF\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF";
  std::string text;
  for (const char32_t point : points) append(text, point);
  EXPECT_EQ(find_invalid(text), std::string_view::npos);
  size_t offset = 0;
  for (const char32_t point : points) EXPECT_EQ(decode(text, offset), point);
  EXPECT_EQ(offset, text.size());
}

// Expected values: bytes.decode("utf-8", "replace") of Python.
TEST(Utf8, ReplacesEveryMaximalIllFormedPartOnce) {
  EXPECT_EQ(replace_invalid("a\xFF\xFE"
                            "b"),
            "a\uFFFD\uFFFDb");
  EXPECT_EQ(replace_invalid("\xE1\x80"
                            "b"),
            "\uFFFDb");
  EXPECT_EQ(replace_invalid("\xF1\x80\x80\xE1\x80\xC2"
                            "b\x80"),
            "\uFFFD\uFFFD\uFFFDb\uFFFD");
  EXPECT_EQ(replace_invalid("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid("ĉu"), "ĉu");
}

}  // namespace
}  // namespace finetune::utf8
