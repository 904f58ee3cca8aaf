// SPDX-License-Identifier: MIT
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/gloo_members.h"
#include "finetune/distributed/board.h"

namespace finetune::testing {
namespace {

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

TEST(Board, TellsWhoIsGone) {
  Board& board = make_board();
  EXPECT_FALSE(board.tells_who_is_gone(2));  // nobody: it is this one
  EXPECT_EQ(board.lost_rank, 2);
  EXPECT_TRUE(board.tells_who_is_gone(1));
  EXPECT_EQ(board.lost_rank, 2);
}

}  // namespace
}  // namespace finetune::testing
