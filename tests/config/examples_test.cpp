// SPDX-License-Identifier: MIT
#include "finetune/config/examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/config/load.h"
#include "load_helpers.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_yaml;
using ::testing::Not;

bool has(const std::vector<ExampleFile>& files, const std::string& path) {
  return std::ranges::find(files, path, &ExampleFile::path) != files.end();
}

TEST(Examples, AreWrittenWithEveryFileThatTheyName) {
  for (const std::string& name : example_names()) {
    const std::vector<ExampleFile> files = example_files(name);
    EXPECT_EQ(files.front().path, name + ".yaml");
    const TrainingArgs args = load_yaml(files.front().content).args;
    for (const auto* list : {&args.train_file, &args.validation_file, &args.test_file}) {
      for (const std::string& path : *list) EXPECT_TRUE(has(files, path)) << name << ": " << path;
    }
    EXPECT_TRUE(has(files, args.tokenizer_name.value_or("") + "/tokenizer.json")) << name;
  }
}

TEST(Examples, NameNothingOfTheRepository) {
  for (const std::string& name : example_names()) {
    const std::string yaml = example_files(name).front().content;
    for (const char* path : {"../", "configs/", "tests/", "docs/"}) {
      EXPECT_THAT(yaml, Not(HasSubstr(path))) << name;
    }
  }
}

TEST(Examples, HaveTheBytesOfTheRepository) {
  const std::string text =
      FileSystem::local().read_all(source_dir() + "/tests/fixtures/text/lighthouse.txt");
  bool is_found = false;
  for (const ExampleFile& file : example_files("smoke")) {
    if (file.path != "data/lighthouse.txt") continue;
    is_found = true;
    EXPECT_TRUE(file.content == text);
  }
  EXPECT_TRUE(is_found);
}

TEST(Examples, OfAnUnknownNameAreRefusedWithTheNames) {
  try {
    (void)example_files("smok");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_GOLDEN(error.what());
    EXPECT_THAT(error.what(), HasSubstr("token_classification"));
  }
}

}  // namespace
}  // namespace finetune
