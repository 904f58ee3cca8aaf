// SPDX-License-Identifier: MIT
// Threads that each hold a member of a world, over Gloo.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/distributed/board.h"
#include "finetune/distributed/membership.h"
#include "finetune/distributed/peer_lost.h"
#include "finetune/distributed/world.h"

namespace finetune::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JoinWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = reason_against_several_processes();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  // What each member's thread says at its end: what it threw, or nothing.
  std::vector<std::string> run(int64_t size, const std::function<void(World&)>& work,
                               const std::function<void(Membership&)>& change = {},
                               const std::vector<std::string>& identities = {}) {
    std::vector<std::string> ends(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        std::string& end = ends[static_cast<size_t>(rank)];
        Membership one{.rank = rank, .size = size, .file = folder_ / "meeting", .token = "secret"};
        if (change) change(one);
        try {
          const auto world = join_world(
              one, identities.empty() ? "same" : identities[static_cast<size_t>(rank)], 2);
          work(*world);
        } catch (const Error& error) {
          end = error.what();
        } catch (const PeerLost& lost) {
          end = std::string("lost: ") + lost.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  TemporaryFolder folder_;
};

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
  EXPECT_THAT(ends[0], HasSubstr("not all 2 processes came within 2 s"));
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
  Board& board = make_board();
  EXPECT_TRUE(board.may_say("disk full"));
  EXPECT_FALSE(board.may_say("disk full"));
  EXPECT_TRUE(board.may_say("another"));
}

}  // namespace
}  // namespace finetune::testing
