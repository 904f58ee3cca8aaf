// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/finished_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/run_folder.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/mirror.h"
#include "support/golden.h"

namespace finetune::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;

struct FinishedFolder : RunFolder {
  FinishedFolder() {
    root.write("out/eval_results.json", "{\"eval_loss\": 1}");
    root.write("out/all_results.json", "{\"eval_loss\": 1}");
    root.write("out/notes.txt", "the user's");
    ModelExport model(files, output_dir);
    model.write(text_file("model.safetensors", "weights"));
    model.add_results();
    model.commit("run", 12, "{\"finished\": true}");
  }
  [[nodiscard]] FinishedModel inspect(bool verify = true) {
    return inspect_finished_model(files, output_dir, verify);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return output_dir + "/" + name; }
};

TEST(FinishedModel, RecordsWhatWasExportedAndNothingOfTheUsers) {
  FinishedFolder folder;
  const FinishedModel model = folder.inspect();
  EXPECT_TRUE(model.is_valid()) << describe_damage(model);
  EXPECT_EQ(model.manifest->step, 12);
  EXPECT_EQ(model.manifest->run_id, "run");
  EXPECT_THAT(model.manifest->files,
              ElementsAre(Key("all_results.json"), Key("eval_results.json"),
                          Key("finetune_state.json"), Key("model.safetensors")));
}

TEST(FinishedModel, LeavesTheModelCardToTheUser) {
  FinishedFolder folder;
  ModelExport model(folder.files, folder.output_dir);
  model.write(text_file("model.safetensors", "weights"));
  model.write(text_file(kModelCardFile, "# A model"));
  model.commit("run", 12, "{\"finished\": true}");
  EXPECT_EQ(folder.inspect().manifest->files.count(kModelCardFile), 0U);
  // Older versions recorded it.
  Manifest manifest = *folder.inspect().manifest;
  manifest.files[kModelCardFile] = record_file(folder.files, folder.path(kModelCardFile));
  write_manifest(folder.files, folder.output_dir, manifest);
  folder.root.write("out/README.md", "# Edited");
  EXPECT_TRUE(folder.inspect().is_valid());
  std::filesystem::remove(folder.path(kModelCardFile));
  EXPECT_TRUE(folder.inspect().is_valid());
}

TEST(FinishedModel, FindsEachKindOfDamage) {
  FinishedFolder folder;
  folder.root.write("out/model.safetensors", "weighty");
  EXPECT_TRUE(folder.inspect(false).is_valid()) << "the size is the same";
  EXPECT_THAT(folder.inspect().damaged, ElementsAre(Key("model.safetensors")));
  folder.root.write("out/model.safetensors", "short");
  EXPECT_THAT(folder.inspect(false).damaged, ElementsAre(Key("model.safetensors")));
  std::filesystem::remove(folder.path("model.safetensors"));
  EXPECT_GOLDEN(describe_damage(folder.inspect()));
  std::filesystem::create_directory(folder.path("model.safetensors"));
  EXPECT_GOLDEN(describe_damage(folder.inspect()));
  std::filesystem::remove(folder.path("model.safetensors"));
  std::filesystem::create_symlink("nowhere", folder.path("model.safetensors"));
  EXPECT_GOLDEN(describe_damage(folder.inspect()));
  folder.root.write("elsewhere", "weights");
  std::filesystem::remove(folder.path("model.safetensors"));
  std::filesystem::create_symlink(folder.root / "elsewhere", folder.path("model.safetensors"));
  EXPECT_TRUE(folder.inspect().is_valid()) << "a link is the file that it points to";
  folder.root.write("out/manifest.json", "{}");
  EXPECT_FALSE(folder.inspect().manifest);
  EXPECT_TRUE(folder.inspect().has_manifest_file);
}

TEST(FinishedModel, WritesWhatSaysThatItIsFinishedLast) {
  RunFolder folder;
  ModelExport model(folder.files, folder.output_dir);
  model.write(text_file("model.safetensors", "weights"));
  EXPECT_THAT(folder.names(), ElementsAre(kWrittenFile, "model.safetensors"));
  std::filesystem::create_directory(folder.output_dir + "/finetune_state.json");
  model.commit("run", 3, "{}");
  EXPECT_THAT(folder.names(),
              ElementsAre(kWrittenFile, "finetune_state.json", "finetune_state.json.bad-1",
                          "manifest.json", "model.safetensors"));
}

// The state after a kill between the renames of manifest.json and finetune_state.json.
TEST(FinishedModel, CompletesAnExportThatWasKilledBetweenItsLastTwoFiles) {
  FinishedFolder folder;
  std::filesystem::rename(folder.path("finetune_state.json"),
                          folder.path(".tmp-finetune_state.json.7"));
  folder.root.write("out/.tmp-finetune_state.json.6", "{\"finished\": fal");
  complete_export(folder.files, folder.output_dir);
  EXPECT_TRUE(folder.inspect().is_valid()) << describe_damage(folder.inspect());
  EXPECT_TRUE(std::filesystem::exists(folder.path(".tmp-finetune_state.json.6")));
  complete_export(folder.files, folder.output_dir);  // does nothing the second time
  EXPECT_TRUE(folder.inspect().is_valid());
}

TEST(FinishedModel, DoesNotInventALostState) {
  FinishedFolder folder;
  std::filesystem::remove(folder.path("finetune_state.json"));
  folder.root.write("out/.tmp-finetune_state.json.6", "{\"finished\": fals}");
  complete_export(folder.files, folder.output_dir);
  EXPECT_THAT(folder.inspect().damaged, ElementsAre(Key("finetune_state.json")));
}

TEST(QuarantineFile, NeverReplacesWhatWasQuarantined) {
  FinishedFolder folder;
  EXPECT_EQ(quarantine_file(folder.files, folder.path("notes.txt")), "notes.txt.bad-1");
  folder.root.write("out/notes.txt", "again");
  EXPECT_EQ(quarantine_file(folder.files, folder.path("notes.txt")), "notes.txt.bad-2");
  EXPECT_EQ(quarantine_file(folder.files, folder.path("notes.txt")), "");
  EXPECT_TRUE(is_quarantined_file_name("notes.txt.bad-12"));
  EXPECT_FALSE(is_quarantined_file_name("notes.bad-"));
  EXPECT_FALSE(is_quarantined_file_name(".bad-1"));
}

TEST(ResultUpdate, NeverContradictsTheFiles) {
  FinishedFolder folder;
  ResultUpdate update(folder.files, folder.output_dir);
  folder.root.write("out/eval_results.json", "{\"eval_loss\": 2}");
  EXPECT_TRUE(folder.inspect().is_valid()) << "as where it is killed now";
  folder.root.write("out/predict_results.json", "{}");
  update.commit();
  EXPECT_TRUE(folder.inspect().is_valid());
  EXPECT_EQ(folder.inspect().manifest->files.size(), 5U);
}

TEST(ResultUpdate, GivesNoDamageAChecksum) {
  FinishedFolder folder;
  folder.root.write("out/eval_results.json", "{\"eval_loss\": 3}");
  ResultUpdate(folder.files, folder.output_dir).commit();
  EXPECT_THAT(folder.inspect().damaged, ElementsAre(Key("eval_results.json")));
  folder.root.write("out/all_results.json", "{\"eval_loss\": 3}");
  ResultUpdate update(folder.files, folder.output_dir);
  folder.root.write("out/eval_results.json", "{\"eval_loss\": 4}");
  update.commit();
  EXPECT_EQ(folder.inspect().damaged.size(), 2U);
  std::filesystem::remove(folder.path("manifest.json"));
  ResultUpdate(folder.files, folder.output_dir).commit();
  EXPECT_FALSE(folder.inspect().has_manifest_file) << "an older version's folder";
}

TEST(RestoreFile, TakesTheMirrorsCopyOnlyWhereItMatches) {
  FinishedFolder folder;
  const std::string mirror = folder.root / "mirror";
  std::filesystem::create_directory(mirror);
  const FileRecord record = folder.inspect().manifest->files.at("model.safetensors");
  const RestoreOptions options{
      .local = shared_local_files(),
      .output_dir = folder.output_dir,
      .files = shared_local_files(),
      .mirror_dir = mirror,
      .report = [&](const std::string& line) { folder.lines.push_back(line); }};
  folder.root.write("out/model.safetensors", "damaged");
  EXPECT_FALSE(restore_file(options, "model.safetensors", record));
  folder.root.write("mirror/model.safetensors", "weighty");
  EXPECT_FALSE(restore_file(options, "model.safetensors", record));
  EXPECT_EQ(folder.lines.size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(folder.path("model.safetensors.bad-1")));
  folder.root.write("mirror/model.safetensors", "weights");
  EXPECT_TRUE(restore_file(options, "model.safetensors", record));
  EXPECT_TRUE(folder.inspect().is_valid());
  EXPECT_TRUE(std::filesystem::exists(folder.path("model.safetensors.bad-1")));
}

TEST(MirroredModel, IsNeverReplacedByADamagedFileAndIsComparedByContent) {
  FinishedFolder folder;
  const std::string mirror = folder.root / "mirror";
  const auto copy = [&] {
    Mirror copies({.directory = mirror,
                   .files = shared_local_files(),
                   .local = shared_local_files(),
                   .lease = {.heartbeat_seconds = 0}});
    const FinishedModel model = folder.inspect(false);
    for (const auto& [name, record] : model.manifest->files) {
      copies.copy_file(folder.path(name), record);
    }
    copies.copy_file(folder.path("manifest.json"));
    return copies.finish(60);
  };
  const auto in_mirror = [&] { return inspect_finished_model(folder.files, mirror, true); };
  EXPECT_TRUE(copy());
  EXPECT_TRUE(in_mirror().is_valid());
  folder.root.write("mirror/model.safetensors", "weighty");
  folder.root.write("mirror/manifest.json", "{}");
  EXPECT_TRUE(copy());
  EXPECT_TRUE(in_mirror().is_valid()) << "repaired";
  folder.root.write("out/model.safetensors", "damaged");
  EXPECT_FALSE(copy());
  EXPECT_TRUE(in_mirror().is_valid()) << "the damage was not copied";
}

}  // namespace
}  // namespace finetune::checkpoint
