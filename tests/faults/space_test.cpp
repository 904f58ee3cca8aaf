// SPDX-License-Identifier: MIT
// Disks that are too small for a run from the start: detected before the first step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "faults/fault_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Fault with_free(uint64_t bytes) { return {.free_bytes = bytes}; }

class Space : public ::testing::Test {
 protected:
  // Returns the bytes of one checkpoint that the message reports, including the margin.
  uint64_t bytes_of_a_checkpoint() {
    run_.start_over();
    const Session session = run_.start(with_free(1));
    std::smatch found;
    const std::regex number("for one checkpoint: ([0-9]+) bytes are needed, 1 bytes are free");
    if (!std::regex_search(session.said, found, number)) throw std::runtime_error(session.said);
    return std::stoull(found[1]);
  }

  void expect_refused(const Session& session) {
    EXPECT_EQ(session.code, 1) << session.said;
    EXPECT_THAT(session.said, HasSubstr("error: not enough space in '" + run_.out() + "'"));
    EXPECT_THAT(session.said, HasSubstr("nothing was trained"));
    EXPECT_THAT(session.said, Not(HasSubstr("was not saved")));
    EXPECT_THAT(session.said, Not(HasSubstr("finished 12 steps")));
    EXPECT_EQ(run_.record().commits, 0);
    EXPECT_FALSE(std::filesystem::exists(run_.out("model.safetensors")));
  }

  FaultRun run_;
};

TEST_F(Space, RefusesARunWhoseFirstCheckpointWillNotFit) {
  const uint64_t needed = bytes_of_a_checkpoint();
  run_.start_over();
  expect_refused(run_.start(with_free(needed - 1)));
  EXPECT_THAT(run_.names("checkpoint-"), IsEmpty());
  EXPECT_EQ(run_.finish(0), "") << "once there is room";
}

TEST_F(Space, WarnsOfARunWhoseSecondCheckpointWillNotFit) {
  const uint64_t needed = bytes_of_a_checkpoint();
  for (const auto& [free, warns] : {std::pair{needed, true}, {20 * needed, false}}) {
    run_.start_over();
    const Session session = run_.start(with_free(free));
    EXPECT_EQ(session.code, 0) << session.said;
    EXPECT_EQ(session.says("this run may need " + std::to_string(3 * needed) + " bytes more in '" +
                           run_.out() + "' and " + std::to_string(free) + " bytes are free"),
              warns)
        << session.said;
    EXPECT_EQ(run_.compare(), "");
  }
}

TEST_F(Space, CountsAMirrorOnTheSameFileSystem) {
  const uint64_t needed = bytes_of_a_checkpoint();
  const std::vector<std::string> mirrored = {"--mirror_dir", run_.root() + "/mirror"};
  run_.start_over();
  const Session session = run_.start(with_free(2 * needed - 1), mirrored);
  expect_refused(session);
  EXPECT_TRUE(session.says("and the mirror '" + run_.root() + "/mirror" +
                           "', which share a file system, for one checkpoint in each: " +
                           std::to_string(2 * needed) + " bytes are needed"))
      << session.said;
  run_.start_over();
  const Session enough = run_.start(with_free(2 * needed), mirrored);
  EXPECT_EQ(enough.code, 0) << enough.said;
  EXPECT_TRUE(enough.says("this run may need")) << enough.said;
}

TEST_F(Space, NeedsRoomForTheModelAloneWithoutSaves) {
  const uint64_t checkpoint = bytes_of_a_checkpoint();
  run_.start_over();
  const Session session = run_.start(with_free(1), {"--save_strategy", "no"});
  expect_refused(session);
  EXPECT_TRUE(session.says("for the finished model and its results")) << session.said;
  run_.start_over();
  const Session trained = run_.start(with_free(checkpoint - 1), {"--save_strategy", "no"});
  EXPECT_EQ(trained.code, 0) << trained.said;
}

// Of two checkpoints to keep, rotation frees the older one, so only one more must fit.
TEST_F(Space, KnowsWhatRotationFreesWhenItResumes) {
  const uint64_t needed = bytes_of_a_checkpoint();
  run_.start_over();
  ASSERT_EQ(run_.start({}, {"--stop_at_step", "6"}).code, 75);
  // A save without space deletes the older one first, so that the margin alone must be free.
  const Session refused = run_.start(with_free(needed / 16));
  EXPECT_EQ(refused.code, 1) << refused.said;
  EXPECT_THAT(refused.said, HasSubstr("for one checkpoint"));
  EXPECT_EQ(run_.names("checkpoint-").size(), 2U) << "nothing is lost";
  const Session session = run_.start(with_free(needed));
  EXPECT_EQ(session.code, 0) << session.said;
  EXPECT_FALSE(session.says("this run may need")) << session.said;
  EXPECT_EQ(run_.compare(), "");
}

}  // namespace
}  // namespace finetune::testing
