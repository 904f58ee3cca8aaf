// SPDX-License-Identifier: MIT
#include "export/staged_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

class StagedOutputTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> names() const {
    return FileSystem::local().list(folder_.path());
  }
  void write(const std::string& name, const std::string& content) const {
    FileSystem::local().make_directories(parent_path(folder_ / name));
    folder_.write(name, content);
  }
  [[nodiscard]] std::string refusal(const std::string& name, bool overwrite, uint64_t bytes = 0) {
    try {
      const StagedOutput output(folder_ / name, overwrite, bytes);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  TemporaryFolder folder_;
};

TEST_F(StagedOutputTest, IsThereOnlyWhenItIsComplete) {
  {
    StagedOutput output(folder_ / "model", false, 10);
    output.write("config.json", "{}");
    EXPECT_FALSE(FileSystem::local().exists(folder_ / "model"));
  }
  EXPECT_TRUE(names().empty());
  StagedOutput output(folder_ / "model/", false, 10);
  output.write("config.json", "{}");
  output.verify();
  output.commit();
  EXPECT_THAT(names(), ElementsAre("model"));
  EXPECT_EQ(output.bytes(), 2);
  EXPECT_EQ(FileSystem::local().read_all(folder_ / "model/config.json"), "{}");
}

TEST_F(StagedOutputTest, ReplacesAModelOrAFileOnlyWhereItIsAskedTo) {
  write("model/config.json", "old");
  write("model/tokenizer.json", "old");
  write("model.gguf", "old");
  EXPECT_THAT(refusal("model", false), HasSubstr("exists; choose another name"));
  EXPECT_THAT(refusal("model.gguf", false), HasSubstr("exists; choose another name"));
  for (const char* name : {"model", "model.gguf"}) {
    StagedOutput output(folder_ / name, true, 1);
    if (std::string(name) == "model") {
      output.write("config.json", "new");
    } else {
      output.write("", "new");
    }
    output.commit();
  }
  EXPECT_THAT(names(), ElementsAre("model", "model.gguf"));
  EXPECT_THAT(FileSystem::local().list(folder_ / "model"), ElementsAre("config.json"));
  EXPECT_EQ(FileSystem::local().read_all(folder_ / "model.gguf"), "new");
}

TEST_F(StagedOutputTest, NeverReplacesOtherFolders) {
  write("photos/a.jpg", "a");
  write("run/config.json", "{}");
  write("run/checkpoint-10/config.json", "{}");
  write("edited/config.json", "{}");
  write("edited/notes.txt", "mine");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal("photos", true), HasSubstr("holds 'a.jpg', which no export wrote"));
  EXPECT_THAT(refusal("run", true), HasSubstr("holds 'checkpoint-10', which no export wrote"));
  EXPECT_THAT(refusal("edited", true), HasSubstr("holds 'notes.txt', which no export wrote"));
  EXPECT_THAT(refusal("pipe", true), HasSubstr("neither a file nor a folder"));
  write("adapter/adapter_model.safetensors", "mine");
  EXPECT_THAT(refusal("adapter", true), HasSubstr("holds 'adapter_model.safetensors', which no"));
  write("weights/model.safetensors", "mine");
  EXPECT_THAT(refusal("weights", true), HasSubstr("holds 'model.safetensors' and no config.json"));
}

TEST_F(StagedOutputTest, RemovesWhatAKilledProcessLeft) {
  struct stat status = {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &status), 0);
  const std::string partial = "model.partial-" + std::to_string(status.st_ino) + "-";
  write(partial + "999999999/config.json", "{}");
  write(partial + "1/config.json", "{}");          // of a process that lives
  write("model.partial-7-999999999/a.txt", "{}");  // of another container
  {
    StagedOutput output(folder_ / "model", false, 1);
    output.write("config.json", "{}");
    output.commit();
  }
  EXPECT_THAT(names(),
              ::testing::UnorderedElementsAre("model", partial + "1", "model.partial-7-999999999"));
}

TEST_F(StagedOutputTest, BringsBackWhatAKilledProcessWasReplacing) {
  struct stat status = {};
  ASSERT_EQ(::stat("/proc/self/ns/pid", &status), 0);
  write("model.replaced-" + std::to_string(status.st_ino) + "-999999999/config.json", "old");
  EXPECT_THAT(refusal("model", false), HasSubstr("exists; choose another name"));
  EXPECT_THAT(names(), ElementsAre("model"));
  EXPECT_EQ(FileSystem::local().read_all(folder_ / "model/config.json"), "old");
}

TEST_F(StagedOutputTest, NeedsRoomBeforeItBegins) {
  EXPECT_THAT(refusal("model", false, uint64_t{1} << 60), HasSubstr("make room"));
  EXPECT_TRUE(names().empty());
}

TEST_F(StagedOutputTest, NoticesThatAFileChanged) {
  StagedOutput output(folder_ / "model", false, 1);
  output.write("config.json", "{}");
  output.verify();
  FileSystem::local().write_atomically(join_path(output.path(), "config.json"), "[]");
  EXPECT_THROW(output.verify(), Error);
}

}  // namespace
}  // namespace finetune
