// SPDX-License-Identifier: MIT
#include "data/readers/line_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::TemporaryFolder;

std::vector<std::string> lines_of(const std::string& content) {
  const TemporaryFolder folder;
  LineReader reader(folder.write("a.txt", content));
  std::vector<std::string> lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  EXPECT_EQ(reader.line_number(), static_cast<int64_t>(lines.size()));
  return lines;
}

TEST(LineReader, EndsLinesAtLineFeedsCarriageReturnsAndBothTogether) {
  EXPECT_THAT(lines_of("a\nb\rc\r\nd"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(lines_of("\r\r\n\n\r"), ElementsAre("", "", "", ""));
  EXPECT_THAT(lines_of("a\n"), ElementsAre("a"));
  EXPECT_THAT(lines_of(""), ElementsAre());
  EXPECT_THAT(lines_of("a\rb\rc\nd\re\r"), ElementsAre("a", "b", "c", "d", "e"));
}

// Line ends at and across the boundary of the 1 MiB buffers.
TEST(LineReader, FindsLineEndsAcrossItsBuffer) {
  constexpr size_t kBuffer = size_t{1} << 20;
  for (const std::string end : {"\n", "\r", "\r\n"}) {
    for (size_t length = kBuffer - 3; length <= kBuffer + 1; ++length) {
      const std::string first(length, 'x');
      EXPECT_THAT(lines_of(first + end + "b" + end + "c"), ElementsAre(first, "b", "c"));
      EXPECT_THAT(lines_of("a" + end + first + end + "\r\n" + "c"),
                  ElementsAre("a", first, "", "c"));
    }
  }
}

double processor_seconds_of_reading(const std::string& content) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", content);
  const std::clock_t start = std::clock();
  LineReader reader(path);
  int64_t lines = 0;
  for (std::string_view line; reader.next(line);) ++lines;
  EXPECT_EQ(lines, 2'000'000);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// A search that is quadratic in the buffer took some hundred times as long.
TEST(LineReader, TakesNoLongerForLinesThatEndInCarriageReturnAlone) {
  const double feeds = processor_seconds_of_reading(std::string(2'000'000, '\n'));
  const double returns = processor_seconds_of_reading(std::string(2'000'000, '\r'));
  EXPECT_LT(returns, 1.0 + 20 * feeds);
}

}  // namespace
}  // namespace finetune
