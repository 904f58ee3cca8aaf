// SPDX-License-Identifier: MIT
#include "finetune/base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace finetune {
namespace {

TEST(FormatText, FillsPositionsInOrder) {
  const std::string name = "run.yaml";
  EXPECT_EQ(format_text("{}:{}: unknown key '{}'", name, 12, "save_step"),
            "run.yaml:12: unknown key 'save_step'");
  EXPECT_EQ(format_text("{}{}", std::string_view("a"), std::string("b")), "ab");
  EXPECT_EQ(format_text("no places"), "no places");
  EXPECT_EQ(format_text("write {{\"a\": {}}} or {{}}", 1), "write {\"a\": 1} or {}");
  EXPECT_EQ(format_text("{}", "{}"), "{}");
}

TEST(FormatText, PrintsEveryWholeNumber) {
  EXPECT_EQ(format_text("{} {}", std::numeric_limits<int64_t>::min(),
                        std::numeric_limits<uint64_t>::max()),
            "-9223372036854775808 18446744073709551615");
  EXPECT_EQ(format_text("{} {} {}", int8_t{-128}, uint8_t{255}, 0), "-128 255 0");
}

TEST(FormatNumber, PrintsAsPrintf) {
  EXPECT_EQ(format_number("%.1f GiB", 2.25), "2.2 GiB");
  EXPECT_EQ(format_number("%.4g", 1e300), "1e+300");
  EXPECT_EQ(format_number("%.0f", 1e308).size(), 309U);
}

TEST(BytesText, ShowsSmallDifferences) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(9'999'999), "9999999 bytes");
  EXPECT_EQ(bytes_text(10'000'000), "10 MB");
  EXPECT_EQ(bytes_text(100'040'000), "100 MB");
  EXPECT_EQ(bytes_text(100'050'000), "100.1 MB");
  EXPECT_EQ(bytes_text(12'345'678'901), "12345.7 MB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "18446744073709.6 MB");
}

TEST(Join, PutsSeparatorsBetween) {
  EXPECT_EQ(join(std::vector<std::string>{}), "");
  EXPECT_EQ(join(std::vector<std::string>{"a", "", "c"}), "a, , c");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, " "), "a b");
  EXPECT_EQ(join(std::vector<int64_t>{1, -2}, "x"), "1x-2");
  EXPECT_EQ(shape_text(std::vector<int64_t>{2, 3}), "[2, 3]");
  EXPECT_EQ(shape_text({}), "[]");
}

TEST(LowerCase, ChangesAsciiLettersAlone) {
  EXPECT_EQ(lower_case("Azure-\xC3\x84Z"), "azure-\xC3\x84z");
}

TEST(WrappedLines, BreaksAtSpacesAndIndents) {
  using Lines = std::vector<std::string>;
  const std::string line = "  data  72 samples; validation: 24 samples";
  EXPECT_EQ(wrapped_lines(line, 80, 8), Lines{line});
  EXPECT_EQ(wrapped_lines(line, std::ssize(line), 8), Lines{line});
  EXPECT_EQ(wrapped_lines(line, std::ssize(line) - 1, 8),
            (Lines{"  data  72 samples; validation: 24", "        samples"}));
  EXPECT_EQ(wrapped_lines(line, 20, 8),
            (Lines{"  data  72 samples;", "        validation:", "        24 samples"}));
  EXPECT_EQ(wrapped_lines("", 20, 8), Lines{""});
}

TEST(WrappedLines, SplitsNoWordAndCountsCodePoints) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped_lines("  saves /a/path/that/is/long every step", 12, 2),
            (Lines{"  saves", "  /a/path/that/is/long", "  every step"}));
  EXPECT_EQ(wrapped_lines("\xc3\xa9\xc3\xa9 \xc3\xa9", 4, 2), Lines{"\xc3\xa9\xc3\xa9 \xc3\xa9"});
}

}  // namespace
}  // namespace finetune
