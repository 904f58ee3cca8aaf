// SPDX-License-Identifier: MIT
#include "finetune/state/checkpoint_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/checkpoint/reader.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;

// A counter in its own file; not part of the finished model.
class CounterPart : public CheckpointPart {
 public:
  explicit CounterPart(std::string name) : name_(std::move(name)) {}

  std::vector<checkpoint::CheckpointFile> save(const SaveScope& scope) override {
    if (scope.kind == SaveKind::kModel) return {};
    return {checkpoint::text_file(name_, std::to_string(count))};
  }
  [[nodiscard]] uint64_t bytes(SaveKind kind) const override {
    return kind == SaveKind::kModel ? 0 : std::to_string(count).size();
  }
  void load(const SavedFolder& folder) override {
    count = std::stoll(folder.files.read_all(join_path(folder.path, name_)));
  }
  [[nodiscard]] std::string restored() const override {
    return count > 0 ? name_ + " (" + std::to_string(count) + ")" : "";
  }

  int64_t count = 0;

 private:
  std::string name_;
};

struct TwoCounters {
  TwoCounters() {
    parts.add(first);
    parts.add(second);
  }
  std::shared_ptr<CounterPart> first = std::make_shared<CounterPart>("first.txt");
  std::shared_ptr<CounterPart> second = std::make_shared<CounterPart>("second.txt");
  CheckpointParts parts;
};

TEST(CheckpointParts, AreSavedVerifiedAndRestored) {
  const testing::TemporaryFolder folder;
  FileSystem& files = FileSystem::local();
  TwoCounters saved;
  saved.first->count = 12;
  EXPECT_EQ(saved.parts.bytes(SaveKind::kCheckpoint), 3U);
  const std::string path = checkpoint::write_checkpoint(
      files, folder.path(), {.step = 3, .run_id = "run"}, saved.parts.save({}));

  EXPECT_TRUE(checkpoint::inspect_checkpoint(files, path, true).whole);
  TwoCounters restored;
  restored.parts.load({.files = files, .path = path});
  EXPECT_EQ(restored.first->count, 12);
  EXPECT_THAT(restored.parts.restored(), ElementsAre("first.txt (12)"));

  folder.write("checkpoint-3/first.txt", "13");
  EXPECT_FALSE(checkpoint::inspect_checkpoint(files, path, true).whole);
}

TEST(CheckpointParts, DecideWhatAKindOfSaveContains) {
  const TwoCounters counters;
  EXPECT_EQ(counters.parts.save({.kind = SaveKind::kWithoutOptimizer}).size(), 2U);
  EXPECT_TRUE(counters.parts.save({.kind = SaveKind::kModel}).empty());
}

}  // namespace
}  // namespace finetune
