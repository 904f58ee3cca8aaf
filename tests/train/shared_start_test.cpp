// SPDX-License-Identifier: MIT
#include "train/shared_start.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/gloo_members.h"

namespace finetune {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SharedWeights : public testing::GlooMembers {
 protected:
  static std::vector<Parameter> weights(double last, double correction = 0.0) {
    std::vector<Parameter> result = {{.name = "a", .weight = at::full({3, 4}, 1.0)},
                                     {.name = "b", .weight = at::full({5}, last)}};
    result.back().correction = at::full({5}, correction, at::kChar);
    return result;
  }
};

TEST_F(SharedWeights, MayBeTheSame) {
  const auto ends = run(3, [](World& world) { check_same_weights(world, weights(2.0)); });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

TEST_F(SharedWeights, AreRefusedWhereAProcessHasOthers) {
  const auto ends = run(3, [](World& world) {
    check_same_weights(world, weights(world.rank() == 2 ? 2.0000002 : 2.0));
  });
  EXPECT_THAT(ends, ElementsAre(IsEmpty(), IsEmpty(),
                                HasSubstr("the model's weights differ between rank 0 and rank 2")));
}

TEST_F(SharedWeights, AreRefusedWhereTheirLastBitsDiffer) {
  const auto ends = run(2, [](World& world) {
    check_same_weights(world, weights(2.0, static_cast<double>(world.rank())));
  });
  EXPECT_THAT(ends, ElementsAre(IsEmpty(), HasSubstr("weights differ")));
}

}  // namespace
}  // namespace finetune
