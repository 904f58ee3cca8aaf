// SPDX-License-Identifier: MIT
#include "finetune/tensor/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/model_files.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

WeightFiles find(const std::string& folder) {
  return find_weight_files(FileSystem::local(), folder);
}

std::string refusal(const std::string& folder) {
  return message_of<Error>([&] { (void)find(folder); });
}

std::string index_of(const std::string& file) {
  return R"({"weight_map":{"a":")" + file + R"("}})";
}

TEST(ShardIndex, MapsTensorsToPlainFileNames) {
  const auto shards = parse_shard_index(
      R"({"metadata":{"total_size":1},"weight_map":{"a":"model-00001-of-00002.safetensors"}})",
      "i");
  EXPECT_EQ(shards.at("a"), "model-00001-of-00002.safetensors");
}

TEST(ShardIndex, RefusesPathsAndOtherTypes) {
  for (const char* name :
       {R"("../x.safetensors")", R"("/etc/x.safetensors")", R"("a/b.safetensors")",
        R"(".x.safetensors")", R"("x.bin")", R"("")", R"(".safetensors")", "1", "null", "[]",
        R"("x\u0000.safetensors")", R"("..\\x.safetensors")"}) {
    const std::string text = std::string(R"({"weight_map":{"a":)") + name + "}}";
    EXPECT_THROW((void)parse_shard_index(text, "index"), Error) << name;
  }
  for (const char* text : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", "", "{"}) {
    EXPECT_THROW((void)parse_shard_index(text, "index"), Error) << text;
  }
}

TEST(ShardIndex, RefusesATensorNamedTwice) {
  EXPECT_THROW((void)parse_shard_index(
                   R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", "index"),
               Error);
}

TEST(ShardIndex, OfPickledFilesNamesPickledFiles) {
  EXPECT_EQ(parse_shard_index(index_of("x-1.bin"), "i", ".bin").at("a"), "x-1.bin");
  EXPECT_THROW((void)parse_shard_index(index_of("x.safetensors"), "i", ".bin"), Error);
}

TEST(WeightFiles, AreFoundInTheOrderOfTransformers) {
  const TemporaryFolder folder;
  folder.write("pytorch_model-1.bin", "");
  folder.write(kPickledModelIndexFile, index_of("pytorch_model-1.bin"));
  EXPECT_THAT(find(folder.path()).paths, ElementsAre(folder / "pytorch_model-1.bin"));
  folder.write(kPickledModelFile, "");
  EXPECT_THAT(find(folder.path()).paths, ElementsAre(folder / kPickledModelFile));
  EXPECT_EQ(find(folder.path()).index, "");
  folder.write("model-1.safetensors", "");
  folder.write(kModelIndexFile, index_of("model-1.safetensors"));
  EXPECT_THAT(find(folder.path()).paths, ElementsAre(folder / "model-1.safetensors"));
  EXPECT_EQ(find(folder.path()).owners.at("a"), folder / "model-1.safetensors");
  folder.write(kModelFile, "");
  EXPECT_THAT(find(folder.path()).paths, ElementsAre(folder / kModelFile));
}

TEST(WeightFiles, OfModulesComeAfterTheTransformers) {
  const TemporaryFolder folder;
  folder.write(kModelFile, "");
  for (const char* module : {"2_Dense", "2_Normalize", "10_Dense"}) {
    std::filesystem::create_directory(folder / module);
  }
  folder.write("2_Dense/pytorch_model.bin", "");
  folder.write("10_Dense/model.safetensors", "");
  folder.write("2_Normalize/other.txt", "");
  EXPECT_THAT(find(folder.path()).paths, ElementsAre(folder / kModelFile));
  folder.write(kModulesFile, "[]");
  EXPECT_THAT(find(folder.path()).paths, ElementsAre(folder / kModelFile));
  folder.write(kModulesFile,
               R"([{"path": ""}, {"path": "2_Dense", "type": "x.Dense"},
                   {"path": "../3_Dense", "type": "x.Dense"},
                   {"path": "10_Dense", "type": "x.Dense"}])");
  EXPECT_THAT(find(folder.path()).paths,
              ElementsAre(folder / kModelFile, folder / "2_Dense/pytorch_model.bin",
                          folder / "10_Dense/model.safetensors"));
}

TEST(WeightFiles, SayWhatWasLookedForAndWhatIsThereInstead) {
  const TemporaryFolder folder;
  EXPECT_GOLDEN(refusal(folder.path()));
  folder.write("flax_model.msgpack", "");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("from_flax=True"));
  folder.write("tf_model.h5", "");
  EXPECT_GOLDEN(refusal(folder.path()));
}

TEST(WeightFiles, NameTheShardThatIsMissing) {
  const TemporaryFolder folder;
  folder.write(kModelIndexFile, index_of("model-2.safetensors"));
  EXPECT_GOLDEN(refusal(folder.path()));
}

TEST(WeightFiles, MayBeLinksWithinTheFolderButNotOutOfIt) {
  const TemporaryFolder root;
  fs::create_directories(root / "model");
  root.write("secret.safetensors", "");
  const std::string folder = root / "model";
  root.write("model/model.safetensors.index.json", index_of("a.safetensors"));
  for (const std::string target : {"../secret.safetensors", "/etc/passwd"}) {
    fs::remove(folder + "/a.safetensors");
    fs::create_symlink(target, folder + "/a.safetensors");
    EXPECT_GOLDEN(refusal(folder)) << target;
  }
  fs::remove(folder + "/a.safetensors");
  root.write("model/b.safetensors", "");
  fs::create_symlink("b.safetensors", folder + "/a.safetensors");
  EXPECT_EQ(find(folder).paths.size(), 1U);
  // A link to the folder itself makes no difference.
  fs::create_directory_symlink("model", root / "alias");
  EXPECT_EQ(find(root / "alias").paths.size(), 1U);
}

TEST(WeightFiles, MayBeLinksToTheBlobsOfTheirModelInTheHubCache) {
  const TemporaryFolder root;
  const std::string snapshot = "models--org--x/snapshots/0123";
  fs::create_directories(root / snapshot);
  fs::create_directories(root / "models--org--x/blobs");
  fs::create_directories(root / "models--org--y/blobs");
  root.write("models--org--x/blobs/aa", "");
  root.write("models--org--y/blobs/bb", "");
  root.write(snapshot + "/model.safetensors.index.json", index_of("a.safetensors"));
  fs::create_symlink("../../blobs/aa", root / (snapshot + "/a.safetensors"));
  EXPECT_EQ(find(root / snapshot).paths.size(), 1U);
  fs::remove(root / (snapshot + "/a.safetensors"));
  fs::create_symlink("../../../models--org--y/blobs/bb", root / (snapshot + "/a.safetensors"));
  EXPECT_GOLDEN(refusal(root / snapshot));
}

TEST(WeightFiles, AreFiles) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / kModelFile).c_str(), 0600), 0);
  EXPECT_GOLDEN(refusal(folder.path()));
  fs::remove(folder / kModelFile);
  fs::create_directory(folder / kPickledModelFile);
  EXPECT_GOLDEN(refusal(folder.path()));
}

TEST(WeightFiles, AreNotGitLfsPointers) {
  const TemporaryFolder folder;
  folder.write(kModelFile, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
  EXPECT_GOLDEN(refusal(folder.path()));
}

}  // namespace
}  // namespace finetune
