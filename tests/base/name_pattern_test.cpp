// SPDX-License-Identifier: MIT
#include "finetune/base/name_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(NamePattern, MatchesWholeNames) {
  const NamePattern pattern(R"(.*layers\.[0-5]\..*)");
  EXPECT_TRUE(pattern.matches("model.layers.5.mlp"));
  EXPECT_FALSE(pattern.matches("model.layers.6.mlp"));
  EXPECT_FALSE(NamePattern("layers").matches("layers.0"));
  EXPECT_TRUE(NamePattern("a|ab").matches("ab"));
  EXPECT_FALSE(NamePattern("a$").matches("a\n"));
}

TEST(NamePattern, HasPythonsSyntax) {
  EXPECT_TRUE(NamePattern(R"(.*(?<!lm_)head)").matches("model.head"));
  EXPECT_FALSE(NamePattern(R"(.*(?<!lm_)head)").matches("model.lm_head"));
  EXPECT_TRUE(NamePattern("(?P<part>q|k)_proj").matches("k_proj"));
}

TEST(NamePattern, SaysWhyATextIsNone) {
  EXPECT_THAT([] { (void)NamePattern("q_(proj"); },
              ThrowsMessage<Error>(HasSubstr("missing closing parenthesis (at character 7)")));
  EXPECT_THAT([] { (void)NamePattern(std::string(70'000, 'a')); },
              ThrowsMessage<Error>(HasSubstr("longer than 64 kB")));
}

TEST(NamePattern, EndsAfterALimitedNumberOfSteps) {
  const NamePattern hostile("(a+)+b|(a*)*c");
  EXPECT_THAT([&] { (void)hostile.matches(std::string(64, 'a')); },
              ThrowsMessage<Error>(HasSubstr("match limit exceeded")));
}

}  // namespace
}  // namespace finetune
