// SPDX-License-Identifier: MIT
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "distributed/gloo_members.h"
#include "distributed/peer_timeout.h"
#include "finetune/base/interrupt.h"
#include "finetune/distributed/board.h"

namespace finetune::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JoinWorld : public GlooMembers {};

TEST_F(JoinWorld, SumsSharesAndGathers) {
  const auto ends = run(3, [](World& world) {
    const auto rank = static_cast<double>(world.rank());
    std::vector<double> numbers = {rank, 0.1};
    world.sum(numbers);
    EXPECT_EQ(numbers[0], 3.0);
    EXPECT_EQ(world.broadcast("from " + std::to_string(world.rank())), "from 0");
    EXPECT_THAT(world.gather(std::string(static_cast<size_t>(world.rank()), 'x')),
                ElementsAre("", "x", "xx"));
    EXPECT_TRUE(world.any(world.rank() == 2));
    EXPECT_FALSE(world.any(false));
    const Tensor input = at::full({3}, rank, at::kFloat);
    const Tensor output = at::full({3}, -1.0, at::kFloat);
    world.all_to_all(output, input, {1, 1, 1}, {1, 1, 1});
    EXPECT_EQ(output[2].item<float>(), 2.0F);
  });
  EXPECT_THAT(ends, ElementsAre("", "", ""));
}

TEST_F(JoinWorld, RefusesAProcessWithoutTheToken) {
  const auto ends = run(
      2, [](World&) { ADD_FAILURE() << "it joined"; },
      [](Membership& one) { one.token = one.rank == 1 ? "guess" : "secret"; });
  EXPECT_THAT(ends[0], HasSubstr("rank 1 does not know this job's token"));
  EXPECT_THAT(ends[1], HasSubstr("rank 0 does not know this job's token"));
}

TEST_F(JoinWorld, RefusesAnotherConfiguration) {
  const auto ends = run(2, [](World&) { ADD_FAILURE() << "it joined"; }, {}, {"a", "b"});
  EXPECT_THAT(ends[0], HasSubstr("rank 1 has another configuration"));
}

TEST_F(JoinWorld, GivesUpWhereNotAllCome) {
  const auto ends = run(
      1, [](World&) { ADD_FAILURE() << "it joined"; }, [](Membership& one) { one.size = 2; });
  EXPECT_EQ(ends[0],
            "lost: not all 2 processes came within 2 s: rank 1 did not; start them all, or raise "
            "ddp_timeout");
}

// The lowest rank that has arrived names the missing ranks.
TEST_F(JoinWorld, NamesWhoIsMissingOnce) {
  const auto ends = run(
      3, [](World&) { ADD_FAILURE() << "it joined"; },
      [](Membership& one) {
        one.rank += 1;
        one.size = 5;
      });
  EXPECT_THAT(ends, ElementsAre(HasSubstr(": ranks 0 and 4 did not;"), "lost: ", "lost: "));
}

TEST_F(JoinWorld, NamesTheAddressWhereRankZeroIsNot) {
  const auto ends = run(
      1, [](World&) { ADD_FAILURE() << "it joined"; },
      [](Membership& one) { one = {.rank = 1, .size = 2, .host = "127.0.0.1", .port = 9}; });
  EXPECT_THAT(ends[0], HasSubstr("lost: rank 0 was not at 127.0.0.1:9 within 2 s; start all 2"));
}

TEST_F(JoinWorld, StopsAtASignalWhileOthersAreMissing) {
  for (const bool waits_for_port : {false, true}) {
    std::thread signal([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      interrupt::request(SIGTERM);
    });
    const auto begin = std::chrono::steady_clock::now();
    const auto ends = run(
        1, [](World&) { ADD_FAILURE() << "it joined"; },
        [&](Membership& one) {
          one.size = 2;
          if (waits_for_port) one = {.rank = 1, .size = 2, .host = "127.0.0.1", .port = 9};
        });
    signal.join();
    interrupt::reset();
    EXPECT_THAT(ends, ElementsAre("stopped: waiting for the other processes"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
  }
}

TEST_F(JoinWorld, RefusesTwoThatSayTheyAreTheSameRank) {
  const auto ends = run(
      2, [](World&) { ADD_FAILURE() << "it joined"; },
      [](Membership& one) {
        one.rank = 1;
        one.size = 3;
      });
  EXPECT_THAT(ends, Contains(HasSubstr("another process says that it is rank 1 of this job too")));
}

// A rank that was restarted while the others continue, or another process with the same rank.
TEST_F(JoinWorld, LetsNobodyInBehindTheMeeting) {
  std::atomic<int> met = 0;
  const auto ends = run(
      3,
      [&](World&) {
        ++met;
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
      },
      [&](Membership& one) {
        one.size = 2;
        if (one.rank < 2) return;
        one.rank = 1;
        while (met < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      });
  EXPECT_THAT(ends, ElementsAre("", "", HasSubstr("started without this one")));
}

TEST(NamesOfRanks, NamesAFew) {
  EXPECT_EQ(names_of_ranks({7}), "rank 7");
  EXPECT_EQ(names_of_ranks({1, 3}), "ranks 1 and 3");
  EXPECT_EQ(names_of_ranks({1, 2, 3, 4, 9}), "ranks 1, 2, 3, 4 and 9");
  EXPECT_EQ(names_of_ranks({1, 2, 3, 4, 9, 11}), "ranks 1, 2, 3, 4 and 2 others");
}

// Reported before it waits for other ranks.
TEST_F(JoinWorld, NamesTheInterfacesWhereTheOneThatWasAskedForIsMissing) {
  const auto ends = run(
      1, [](World&) { ADD_FAILURE() << "it joined"; },
      [](Membership& one) {
        one.size = 2;
        one.interface = "nosuch";
      });
  EXPECT_THAT(ends[0], HasSubstr("GLOO_SOCKET_IFNAME is 'nosuch'"));
  EXPECT_THAT(ends[0], HasSubstr("it has lo"));
}

TEST_F(JoinWorld, NoticesThatAnotherIsGone) {
  const auto ends = run(2, [](World& world) {
    if (world.rank() == 1) return;
    for (int i = 0; i < 100; ++i) (void)world.any(false);
  });
  EXPECT_THAT(ends[0], HasSubstr("lost: the connection to another process is lost"));
  EXPECT_EQ(ends[1], "");
}

TEST(Board, LetsOneProcessSayAMessage) {
  Board& board = make_board(2);
  EXPECT_TRUE(board.may_say("disk full"));
  EXPECT_FALSE(board.may_say("disk full"));
  EXPECT_TRUE(board.may_say("another"));
}

TEST(Board, TellsWhoIsGone) {
  Board& board = make_board(2);
  EXPECT_FALSE(board.tells_who_is_gone(2));  // no rank is dead yet, so it names this one
  EXPECT_EQ(board.lost_rank, 2);
  EXPECT_TRUE(board.tells_who_is_gone(1));
  EXPECT_EQ(board.lost_rank, 2);
}

}  // namespace
}  // namespace finetune::testing
