// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/layout.h"

#include <gtest/gtest.h>

#include <limits>

namespace finetune::checkpoint {
namespace {

TEST(CheckpointNames, ParseExactlyWhatIsWritten) {
  for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{500}, int64_t{123456789},
                             std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(parse_checkpoint_name(checkpoint_name(step)), step);
  }
  for (const char* name : {"",
                           "checkpoint",
                           "checkpoint-",
                           "checkpoint-12x",
                           "checkpoint-12.tmp",
                           "xcheckpoint-12",
                           "checkpoint-012",
                           "checkpoint-00",
                           "checkpoint--1",
                           "checkpoint-+1",
                           "checkpoint- 1",
                           "checkpoint-1 ",
                           "Checkpoint-1",
                           "checkpoint-1/",
                           "checkpoint-1\n",
                           "checkpoint_1",
                           "checkpoint-9223372036854775808",
                           "checkpoint-1e3",
                           "checkpoint-0x1",
                           ".checkpoint-1",
                           "checkpoint-1.bad-1",
                           "tmp-checkpoint-1",
                           "checkpoint-1-2"}) {
    EXPECT_FALSE(parse_checkpoint_name(name)) << name;
  }
}

TEST(AsideNames, ParseExactlyWhatIsWritten) {
  for (const QuarantineReason reason : {QuarantineReason::kBad, QuarantineReason::kOld}) {
    const std::string name = quarantine_name({.step = 12, .reason = reason, .number = 3});
    const auto parsed = parse_quarantine_name(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->step, 12);
    EXPECT_EQ(parsed->reason, reason);
    EXPECT_EQ(parsed->number, 3);
  }
  for (const char* name :
       {"checkpoint-1", "checkpoint-1.bad", "checkpoint-1.bad-", "checkpoint-1.bad-01",
        "checkpoint-1.bad-1x", "checkpoint-01.bad-1", "checkpoint-1.good-1", "checkpoint-.bad-1",
        "xcheckpoint-1.bad-1", "checkpoint-1.bad--1"}) {
    EXPECT_FALSE(parse_quarantine_name(name)) << name;
  }
}

TEST(LeftoverNames, AreStagingAndTrashAlone) {
  EXPECT_TRUE(is_leftover_name(staging_name(5, "run-1_a", random_identifier())));
  EXPECT_TRUE(is_leftover_name(trash_name(5, random_identifier())));
  EXPECT_TRUE(is_fetch_name(fetch_name(5, "run-1_a")));
  EXPECT_FALSE(is_leftover_name(fetch_name(5, "run-1_a"))) << "it is continued";
  EXPECT_FALSE(is_fetch_name(".fetch-checkpoint-5"));
  for (const char* name :
       {"checkpoint-5", ".tmp-checkpoint-5", ".tmp-checkpoint-5.run", ".tmp-checkpoint-5.run.",
        ".tmp-checkpoint-5..abc", ".tmp-checkpoint-x.run.abc", ".tmp-other.1", "trash", ".trash",
        ".Trash-1000", ".trash-checkpoint-5", ".trash-checkpoint-5.", ".trash-checkpoint-5.a.b",
        ".tmp-checkpoint-5.run.a/b"}) {
    EXPECT_FALSE(is_leftover_name(name)) << name;
  }
}

TEST(TemporaryFileNames, AreThoseOfAtomicWrites) {
  EXPECT_TRUE(is_temporary_file_name(".tmp-trainer_state.json.123"));
  for (const char* name : {"trainer_state.json", ".tmp-", ".tmp-a", ".tmp-a.", ".tmp-.1",
                           ".tmp-a.b", "tmp-a.1", ".tmp-a.1x"}) {
    EXPECT_FALSE(is_temporary_file_name(name)) << name;
  }
}

TEST(FileNames, AreInTheFolderOrInOneOfItsFolders) {
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "a", "rng_0.pt",
                           "1_Pooling/config.json"}) {
    EXPECT_TRUE(is_checkpoint_file_name(name)) << name;
  }
  for (const char* name : {"", ".", "..", "../x", "a/b/c", "a//b", "a/", "a/../b", "a/.b",
                           "/etc/passwd", ".hidden", "a b", "a\n", "ü"}) {
    EXPECT_FALSE(is_checkpoint_file_name(name)) << name;
  }
  EXPECT_FALSE(is_checkpoint_file_name(std::string(256, 'a')));
  EXPECT_FALSE(is_checkpoint_file_name(std::string("a\0b", 3)));
}

TEST(Identifiers, AreShortAndPlainAndRandomOnesDiffer) {
  EXPECT_TRUE(is_identifier(random_identifier()));
  EXPECT_EQ(random_identifier().size(), 16U);
  EXPECT_NE(random_identifier(), random_identifier());
  EXPECT_FALSE(is_identifier(""));
  EXPECT_FALSE(is_identifier("a.b"));
  EXPECT_FALSE(is_identifier("a/b"));
  EXPECT_FALSE(is_identifier(std::string(65, 'a')));
}

}  // namespace
}  // namespace finetune::checkpoint
