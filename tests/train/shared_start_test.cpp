// SPDX-License-Identifier: MIT
#include "train/session/shared_start.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/temporary_folder.h"
#include "distributed/gloo_members.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/output_lock.h"

namespace finetune {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SharedWeights : public testing::GlooMembers {
 protected:
  static std::vector<Parameter> weights(double last, double correction = 0.0) {
    std::vector<Parameter> result = {{{.weight = at::full({3, 4}, 1.0)}, {}, {}},
                                     {{.weight = at::full({5}, last)}, {}, {}}};
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

class SharedFolder : public testing::GlooMembers {};

TEST_F(SharedFolder, IsWhereAllSeeTheRecordOfRankZero) {
  const testing::TemporaryFolder folder;
  const checkpoint::OutputLock lock(folder.path());
  const auto ends = run(3, [&](World& world) { check_same_folder(world, folder.path(), 0.0); });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

// Another disk under the same path, either unused or with another run.
TEST_F(SharedFolder, IsNotOneThatEachMachineHasForItself) {
  const testing::TemporaryFolder folder;
  const testing::TemporaryFolder empty;
  const testing::TemporaryFolder other;
  const checkpoint::OutputLock lock(folder.path());
  const checkpoint::OutputLock another(other.path());
  const auto ends = run(3, [&](World& world) {
    const testing::TemporaryFolder* const seen[] = {&folder, &empty, &other};
    check_same_folder(world, seen[world.rank()]->path(), 0.2);
  });
  EXPECT_THAT(ends, ElementsAre(IsEmpty(), HasSubstr("does not see what rank 0 wrote"),
                                HasSubstr("does not see what rank 0 wrote")));
}

TEST_F(SharedFolder, IsWaitedForWhereItShowsLate) {
  const testing::TemporaryFolder folder;
  const testing::TemporaryFolder late;
  const checkpoint::OutputLock lock(folder.path());
  const std::string name = std::string("/") + checkpoint::kLockFile;
  std::thread server([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::filesystem::copy_file(folder.path() + name, late.path() + name);
  });
  const auto ends = run(2, [&](World& world) {
    check_same_folder(world, world.is_first() ? folder.path() : late.path(), 20.0);
  });
  server.join();
  EXPECT_THAT(ends, Each(IsEmpty()));
}

}  // namespace
}  // namespace finetune
