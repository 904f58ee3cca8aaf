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
#include "finetune/tensor/safetensors.h"

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

// Each rank reads the base of an adapter from files that check_same_base() compares.
TEST_F(SharedWeights, AreComparedWithoutTheBaseOfAnAdapter) {
  const auto ends = run(2, [](World& world) {
    std::vector<Parameter> parameters = weights(static_cast<double>(world.rank()));
    parameters.back().format = {.trainable = false, .home = WeightHome::kBase};
    check_same_weights(world, parameters);
  });
  EXPECT_THAT(ends, Each(IsEmpty()));
}

class SharedBase : public testing::GlooMembers {
 protected:
  // Writes the weights of a base.
  static void write(const testing::TemporaryFolder& folder, float last) {
    const auto file = FileSystem::local().create(folder / "model.safetensors");
    write_safetensors(*file,
                      NamedTensors{{"weight", at::full({4}, 1.0)}, {"bias", at::full({2}, last)}});
    file->close();
  }
  std::vector<std::string> compare(const std::vector<std::string>& folders) {
    return run(static_cast<int>(folders.size()), [&](World& world) {
      TokenCacheOptions cache;
      cache.folder = caches_ / std::to_string(world.rank());
      check_same_base(world, folders[static_cast<size_t>(world.rank())], cache);
    });
  }
  testing::TemporaryFolder caches_;
};

TEST_F(SharedBase, IsNotReadWhereAllSeeTheSameFiles) {
  const testing::TemporaryFolder folder;
  folder.write("model.safetensors", "no weights");  // reading them would fail
  EXPECT_THAT(compare({folder.path(), folder.path(), folder.path()}), Each(IsEmpty()));
}

TEST_F(SharedBase, IsComparedByContentWhereEachMachineHasItsOwnFiles) {
  const testing::TemporaryFolder first;
  const testing::TemporaryFolder same;
  const testing::TemporaryFolder other;
  write(first, 2.0);
  write(same, 2.0);
  write(other, 3.0);
  EXPECT_THAT(compare({first.path(), same.path()}), Each(IsEmpty()));
  EXPECT_THAT(compare({first.path(), same.path(), other.path()}),
              ElementsAre(IsEmpty(), IsEmpty(), HasSubstr("the weights of the base")));
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
