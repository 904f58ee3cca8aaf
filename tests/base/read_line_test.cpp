// SPDX-License-Identifier: MIT
#include "finetune/base/read_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; read_line(stream, line, "text");) lines.push_back(line);
  return lines;
}

TEST(ReadLine, ReadsTheLinesThatGetlineReads) {
  for (const std::string text : {"", "a", "a\n", "a\n\nb", "\n", "a\r\n", "\n\n"}) {
    std::istringstream stream(text);
    std::vector<std::string> expected;
    for (std::string line; std::getline(stream, line);) expected.push_back(line);
    EXPECT_EQ(lines_of(text), expected) << text;
  }
}

TEST(ReadLine, EndsWhereALineHasNoEnd) {
  EXPECT_THAT(lines_of(std::string(kLongestTextLine, 'x') + "\ny"),
              ElementsAre(std::string(kLongestTextLine, 'x'), "y"));
  EXPECT_GOLDEN(message_of<Error>([] { (void)lines_of(std::string(kLongestTextLine + 1, 'x')); }));
}

}  // namespace
}  // namespace finetune
