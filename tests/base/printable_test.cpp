// SPDX-License-Identifier: MIT
#include "finetune/base/printable.h"

#include <gtest/gtest.h>

#include "finetune/base/utf8.h"

namespace finetune {
namespace {

TEST(Printable, EscapesControlCharactersAndKeepsOtherText) {
  EXPECT_EQ(printable("\x1b[31m\a"), "\\u001b[31m\\u0007");
  EXPECT_EQ(printable(std::string_view("a\0b\x7f\r", 5)), "a\\u0000b\\u007f\\u000d");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\u009b31m")
      << "C1, the 8-bit form of ESC [";
  EXPECT_EQ(printable("x\u202Ey\u2066z\u200E"), "x\\u202ey\\u2066z\\u200e") << "bidirectional";
  EXPECT_EQ(printable("a\u2028b\u2029"), "a\\u2028b\\u2029") << "line breaks";
  EXPECT_EQ(printable("two\nlines\tand a tab"), "two\nlines\tand a tab");
  EXPECT_EQ(printable("猫 für ŝanĝo \xF0\x9F\x90\x88"), "猫 für ŝanĝo \xF0\x9F\x90\x88");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xFF"
                      "b\xE7\x8C"),
            "a\\xffb\\xe7\\x8c");
}

TEST(PrintableLine, EscapesLineFeedsAndTabsToo) {
  EXPECT_EQ(printable_line("two\nlines\tand \x1b[31m"), "two\\nlines\\tand \\u001b[31m");
  EXPECT_EQ(printable_line("猫 \xFF"), "猫 \\xff");
}

TEST(ShellWord, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_word("runs/a-1_b.yaml"), "runs/a-1_b.yaml");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Shortened, KeepsBothEndsAndSaysHowMuchIsLeftOut) {
  EXPECT_EQ(shortened("12345678", 8), "12345678");
  EXPECT_EQ(shortened("1234567890", 8), "1234... 2 bytes left out ...7890");
  const std::string text = shortened("begin" + std::string(5'000, 'x') + "end", 100);
  EXPECT_LT(text.size(), 140U);
  EXPECT_TRUE(text.starts_with("begin"));
  EXPECT_TRUE(text.ends_with("end"));
}

TEST(Shortened, SplitsNoCharacter) {
  std::string cats;
  for (int i = 0; i < 100; ++i) cats += "\xE7\x8C\xAB";
  for (size_t most = 8; most < 40; ++most) {
    EXPECT_EQ(utf8::find_invalid(shortened(cats, most)), std::string::npos) << most;
    EXPECT_EQ(utf8::find_invalid(shortened("a" + cats, most)), std::string::npos) << most;
  }
}

TEST(Listed, NamesTheFirstAndCountsTheRest) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a"}), "a");
  EXPECT_EQ(listed({"a", "b", "c"}, 2), "a, b, c");
  EXPECT_EQ(listed({"a", "b", "c", "d"}, 2), "a, b and 2 more");
  EXPECT_EQ(listed({"a", "b", "c", "d"}, 2, "; "), "a; b and 2 more");
}

}  // namespace
}  // namespace finetune
