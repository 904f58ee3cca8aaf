// SPDX-License-Identifier: MIT
#include "finetune/state/divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/golden.h"

namespace finetune {
namespace {

const double kNanLoss = std::nan("");
const double kInfiniteLoss = std::numeric_limits<double>::infinity();

DivergenceOptions with(DivergencePolicy policy) { return {.policy = policy}; }

TEST(Divergence, IsALossOrAGradientOfNoNumber) {
  EXPECT_FALSE(fault_of({}, {}, 1e30, 1e30));
  for (const auto& [loss, norm] :
       {std::pair{kNanLoss, 1.0}, {kInfiniteLoss, 1.0}, {1.0, kNanLoss}, {1.0, kInfiniteLoss}}) {
    EXPECT_TRUE(fault_of({}, {}, loss, norm)) << loss << " " << norm;
  }
  EXPECT_GOLDEN(fault_of({}, {}, kNanLoss, 2.0).value_or(""));
}

TEST(Divergence, IsASpikeAboveTheMedianOnceThereIsOne) {
  const DivergenceOptions options{.loss_spike_factor = 3.0, .grad_norm_spike_factor = 10.0};
  DivergenceState state;
  for (int64_t step = 1; step < static_cast<int64_t>(kLeastForSpike); ++step) {
    count_update(options, state, step, 2.0, 1.0);
  }
  EXPECT_FALSE(fault_of(options, state, 7.0, 1.0)) << "too few updates to judge by";
  // An outlier does not change the median.
  count_update(options, state, kLeastForSpike, 100.0, 1.0);
  EXPECT_FALSE(fault_of(options, state, 6.0, 10.0)) << "at the factor itself";
  EXPECT_GOLDEN(fault_of(options, state, 6.1, 1.0).value_or(""));
  EXPECT_GOLDEN(fault_of(options, state, 2.0, 10.5).value_or(""));
  EXPECT_TRUE(has_faulty_loss(options, state, 6.1));
  EXPECT_FALSE(has_faulty_loss(options, state, 6.0));
}

TEST(Divergence, LooksAtTheNewestUpdatesAndOnlyWhereAFactorAsksForIt) {
  const DivergenceOptions options{.loss_spike_factor = 3.0};
  DivergenceState state;
  for (int64_t step = 1; step <= 40; ++step) {
    count_update(options, state, step, static_cast<double>(step), 1.0);
  }
  ASSERT_EQ(state.recent_losses.size(), kSpikeWindow);
  EXPECT_EQ(state.recent_losses.front(), 9.0);
  EXPECT_EQ(state.recent_losses.back(), 40.0);
  EXPECT_TRUE(state.recent_grad_norms.empty());
  count_update({}, state, 41, 1.0, 1.0);
  EXPECT_TRUE(state.recent_losses.empty());
}

TEST(Divergence, IsMendedAsThePolicySays) {
  const DivergenceState first{.tries = 1};
  EXPECT_EQ(remedy_for(with(DivergencePolicy::kStop), first, {}), Remedy::kStop);
  EXPECT_EQ(remedy_for(with(DivergencePolicy::kSkip), first, {}), Remedy::kSkip);
  EXPECT_EQ(remedy_for(with(DivergencePolicy::kRollBack), first, {}), Remedy::kRollBack);
}

TEST(Divergence, IsNeverSkippedWhereWeightsAreHarmed) {
  const DivergenceState first{.tries = 1};
  const DivergenceOptions skip = with(DivergencePolicy::kSkip);
  EXPECT_EQ(remedy_for(skip, first, {.is_half_applied = true}), Remedy::kRollBack);
  EXPECT_EQ(remedy_for(skip, first, {.is_in_state = true}), Remedy::kRollBack);
}

TEST(Divergence, StopsAfterTooManyTriesWithoutProgress) {
  const DivergenceOptions options{.policy = DivergencePolicy::kRollBack, .max_tries = 2};
  DivergenceState state;
  count_fault(state, 10);
  EXPECT_EQ(remedy_for(options, state, {}), Remedy::kRollBack);
  count_update(options, state, 9, 1.0, 1.0);  // catching up after the rollback
  count_fault(state, 10);
  EXPECT_EQ(remedy_for(options, state, {}), Remedy::kRollBack);
  DivergenceState ahead = state;
  count_fault(state, 11);
  EXPECT_EQ(remedy_for(options, state, {}), Remedy::kStop);

  count_update(options, ahead, 11, 1.0, 1.0);
  count_fault(ahead, 12);
  EXPECT_EQ(remedy_for(options, ahead, {}), Remedy::kRollBack);
}

TEST(Divergence, LeavesOutEveryUpdateThatHoldsOneOfTheSamples) {
  const DivergenceState state{.left_out = {{.position = {.epoch = 1, .sample = 16}, .samples = 8}}};
  EXPECT_TRUE(is_left_out(state, {.epoch = 1, .sample = 16}, 8));
  EXPECT_FALSE(is_left_out(state, {.epoch = 1, .sample = 8}, 8));
  EXPECT_FALSE(is_left_out(state, {.epoch = 1, .sample = 24}, 8));
  EXPECT_FALSE(is_left_out(state, {.epoch = 2, .sample = 16}, 8));
  // The effective batch size was changed in between.
  EXPECT_TRUE(is_left_out(state, {.epoch = 1, .sample = 12}, 6));
  EXPECT_TRUE(is_left_out(state, {.epoch = 1, .sample = 20}, 2));
  EXPECT_TRUE(is_left_out(state, {.epoch = 1, .sample = 0}, 64));
}

TEST(Divergence, GoesBackWithWhatItHasLearned) {
  DivergenceState before{.skipped_updates = 5,
                         .rollbacks = 1,
                         .tries = 2,
                         .faulty_step = 9,
                         .watched_until = 9,
                         .left_out = {{.position = {.epoch = 0, .sample = 8}, .samples = 8}},
                         .recent_losses = {9.0}};
  const DivergenceState restored{.skipped_updates = 1, .recent_losses = {1.0}};
  const DivergenceState state = after_rollback(before, restored);
  EXPECT_EQ(state.rollbacks, 2);
  EXPECT_EQ(state.skipped_updates, 1);
  EXPECT_EQ(state.tries, 2);
  EXPECT_EQ(state.watched_until, 9);
  EXPECT_EQ(state.left_out, before.left_out);
  EXPECT_EQ(state.recent_losses, restored.recent_losses);
}

}  // namespace
}  // namespace finetune
