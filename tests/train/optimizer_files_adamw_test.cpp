// SPDX-License-Identifier: MIT
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "train/optimizer_files.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

AdamW make_optimizer() {
  return {{{"w", at::zeros({2, 3})}, {"b", at::zeros({3})}, {"v", at::zeros({4})}},
          {true, false, true},
          AdamWOptions{}};
}

AdamW make_used_optimizer() {
  AdamW optimizer = make_optimizer();
  float value = 1;
  for (AdamW::Slot& slot : optimizer.slots()) {
    slot.step.fill_(7);
    slot.exp_avg.fill_(value);
    slot.exp_avg_sq.fill_(value + 0.5F);
    ++value;
  }
  return optimizer;
}

void expect_same(const AdamW& left, const AdamW& right) {
  for (size_t i = 0; i < left.slots().size(); ++i) {
    EXPECT_TRUE(at::equal(left.slots()[i].step, right.slots()[i].step)) << i;
    EXPECT_TRUE(at::equal(left.slots()[i].exp_avg, right.slots()[i].exp_avg)) << i;
    EXPECT_TRUE(at::equal(left.slots()[i].exp_avg_sq, right.slots()[i].exp_avg_sq)) << i;
  }
}

// The same state with other keys for the parameters, and with the step as `step` makes it.
template <class Step>
TorchValue rewritten(const TorchValue& value, int64_t first_key, Step step) {
  TorchDict state;
  TorchList groups;
  for (const auto& [key, entry] : value.at("state").as_dict().items) {
    TorchDict slot;
    slot.set("exp_avg_sq", entry.at("exp_avg_sq"));
    slot.set("exp_avg", entry.at("exp_avg"));
    slot.set("step", step(entry.at("step").as_tensor()));
    state.set(std::get<int64_t>(key) + first_key, std::move(slot));
  }
  for (const TorchValue& group : value.at("param_groups").as_sequence()) {
    TorchList keys;
    for (const TorchValue& key : group.at("params").as_sequence()) {
      keys.emplace_back(key.as_int() + first_key);
    }
    TorchDict rewritten_group;
    rewritten_group.set("params", std::move(keys));
    groups.emplace_back(std::move(rewritten_group));
  }
  TorchDict root;
  root.set("param_groups", std::move(groups));
  root.set("state", std::move(state));
  return root;
}

TEST(OptimizerFiles, RestoreWhatTheyWrote) {
  const AdamW used = make_used_optimizer();
  AdamW restored = make_optimizer();
  optimizer_from_torch(restored, optimizer_to_torch(used, 1e-4, 1e-3), "o");
  expect_same(restored, used);
}

TEST(OptimizerFiles, AreReadWithStepsAndKeysOfOtherVersionsOfTorch) {
  const AdamW used = make_used_optimizer();
  const TorchValue written = optimizer_to_torch(used, 1e-4, 1e-3);
  AdamW restored = make_optimizer();
  optimizer_from_torch(
      restored, rewritten(written, 40, [](const Tensor& step) { return step.item<int64_t>(); }),
      "o");
  expect_same(restored, used);
  AdamW other = make_optimizer();
  optimizer_from_torch(
      other, rewritten(written, 0, [](const Tensor& step) { return step.to(at::kDouble); }), "o");
  expect_same(other, used);
}

TEST(OptimizerFiles, LeaveOutWhatWasNeverUpdated) {
  AdamW used = make_used_optimizer();
  used.slots()[1].step.zero_();
  used.slots()[1].exp_avg.zero_();
  used.slots()[1].exp_avg_sq.zero_();
  const TorchValue written = optimizer_to_torch(used, 1e-4, 1e-3);
  EXPECT_EQ(written.at("state").as_dict().items.size(), 2U);
  AdamW restored = make_optimizer();
  optimizer_from_torch(restored, written, "o");
  expect_same(restored, used);
}

TEST(OptimizerFiles, AreRefusedWhereTheyAreOfAnotherModelOrOptimizer) {
  const AdamW used = make_used_optimizer();
  AdamW fewer({{"w", at::zeros({2, 3})}}, {true}, AdamWOptions{});
  const TorchValue written = optimizer_to_torch(used, 1e-4, 1e-3);
  EXPECT_THAT(message_of<Error>([&] { optimizer_from_torch(fewer, written, "a/optimizer.pt"); }),
              HasSubstr("a/optimizer.pt: is the state of 3 parameters where the model has 1"));
  AdamW shaped({{"w", at::zeros({3, 2})}, {"b", at::zeros({3})}, {"v", at::zeros({4})}},
               {true, false, true}, AdamWOptions{});
  EXPECT_THAT(message_of<Error>([&] { optimizer_from_torch(shaped, written, "o"); }),
              HasSubstr("of 'w' is not the parameter's"));
  TorchDict momentum;
  momentum.set("momentum_buffer", at::zeros({2, 3}));
  TorchDict state;
  state.set(int64_t{0}, std::move(momentum));
  TorchDict root;
  root.set("state", std::move(state));
  root.set("param_groups", written.at("param_groups"));
  AdamW restored = make_optimizer();
  EXPECT_THAT(message_of<Error>([&] { optimizer_from_torch(restored, root, "o"); }),
              HasSubstr("is not AdamW's"));
}

}  // namespace
}  // namespace finetune
