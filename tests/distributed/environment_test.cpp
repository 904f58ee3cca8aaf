// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "finetune/base/error.h"
#include "finetune/distributed/membership.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<Membership> membership(const Variables& variables) {
  return membership_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string problem(const Variables& variables) {
  try {
    (void)membership(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(MembershipFromEnvironment, FindsNoneWhereNothingStartedSeveralProcesses) {
  EXPECT_FALSE(membership({}));
  // The script of a batch job, not started by srun.
  EXPECT_FALSE(membership({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
}

TEST(MembershipFromEnvironment, FindsTheSingleProcessOfALauncher) {
  const auto one =
      membership({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->size, 1);
  EXPECT_GOLDEN(problem({{"RANK", "1"}, {"WORLD_SIZE", "1"}}));
}

TEST(MembershipFromEnvironment, RefusesHalfOfWhatTorchrunSets) {
  EXPECT_GOLDEN(problem({{"RANK", "0"}}));
  EXPECT_GOLDEN(problem({{"WORLD_SIZE", "2"}}));
  // Slurm's variables determine the rest.
  EXPECT_EQ(problem({{"SLURM_PROCID", "0"},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_STEP_ID", "0"},
                     {"WORLD_SIZE", "2"}}),
            "");
}

TEST(MembershipFromEnvironment, WarnsWhereAProcessOfAnIndexedJobTrainsAlone) {
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(membership({{"JOB_COMPLETION_INDEX", "1"}}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("it trains alone"));
}

TEST(MembershipFromEnvironment, TakesTorchrunsWorldAndItsServer) {
  const auto one = membership({{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29511"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"GLOO_SOCKET_IFNAME", "eth7"}});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->rank, 3);
  EXPECT_EQ(one->size, 4);
  EXPECT_EQ(one->local_rank, 1);
  EXPECT_EQ(one->host, "10.0.0.1");
  EXPECT_EQ(one->port, 29511);
  EXPECT_TRUE(one->has_agent);
  EXPECT_EQ(one->interface, "eth7");
  EXPECT_THAT(one->prefix, HasSubstr("/2"));
}

TEST(MembershipFromEnvironment, StaysOnTheLoopbackInterfaceOfOneMachine) {
  const auto one = membership({{"SLURM_PROCID", "1"},
                               {"SLURM_NTASKS", "2"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_NNODES", "1"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_JOB_ID", "123456"},
                               {"MASTER_ADDR", "login.example"}});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->rank, 1);
  EXPECT_EQ(one->host, "127.0.0.1");
  EXPECT_EQ(one->port, 23456);
  EXPECT_EQ(one->interface, "");
  EXPECT_EQ(one->launcher, "Slurm");
}

TEST(MembershipFromEnvironment, AsksForWhatSeveralMachinesNeed) {
  Variables job = {{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}};
  EXPECT_THAT(problem(job), HasSubstr("MASTER_ADDR"));
  job["MASTER_ADDR"] = "train-0.svc";
  EXPECT_THAT(problem(job), HasSubstr("GLOO_SOCKET_IFNAME"));
  // Of this machine, without a word of how many ranks it has.
  std::map<std::string, std::string> here = job;
  here["MASTER_ADDR"] = "127.0.0.1";
  EXPECT_EQ(problem(here), "");
  job["GLOO_SOCKET_IFNAME"] = "eth0";
  EXPECT_EQ(problem(job), "");
  job["MASTER_PORT"] = "70000";
  EXPECT_THAT(problem(job), HasSubstr("MASTER_PORT"));
}

TEST(MembershipFromEnvironment, RefusesWhatIsNoRank) {
  EXPECT_GOLDEN(problem({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}}));
  EXPECT_THAT(problem({{"RANK", "one"}, {"WORLD_SIZE", "4"}}), HasSubstr("'one'"));
}

std::string other_rank(const Variables& variables) {
  return other_rank_in_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(OtherRankInEnvironment, IsWhoWasStartedBesideRankZero) {
  EXPECT_EQ(other_rank({{"RANK", "3"}, {"WORLD_SIZE", "4"}}), "RANK=3");
  EXPECT_EQ(other_rank({{"RANK", "0"}, {"WORLD_SIZE", "4"}}), "");
  EXPECT_EQ(other_rank({{"RANK", "3"}}), "");
  EXPECT_EQ(other_rank({{"RANK", "3"}, {"WORLD_SIZE", "1"}}), "");
  Variables task = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  EXPECT_EQ(other_rank(task), "");
  task["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(other_rank(task), "SLURM_PROCID=1");
  task["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(other_rank(task), "");
  // Even though membership_from_environment() requires MASTER_ADDR.
  EXPECT_EQ(other_rank({{"JOB_COMPLETION_INDEX", "1"}, {"WORLD_SIZE", "2"}}),
            "JOB_COMPLETION_INDEX=1");
}

}  // namespace
}  // namespace finetune
