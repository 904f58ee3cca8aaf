// SPDX-License-Identifier: MIT
// The accepted forms of a command line, and the messages about unknown names.
#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CommandLine, TakesKeysAndFlagsBeforeTheConfiguration) {
  const TinyRun run(TinyRun::Keys{{"save_strategy", "\"no\""}, {"eval_strategy", "\"no\""}});
  for (const Arguments& words :
       {Arguments{"train", "--max_steps", "1", "--do_train", run.config(), "--seed", "3"},
        Arguments{"train", "--restart", "--no_do_eval", run.config(), "--max_steps=1"}}) {
    const ProcessResult result = finetune(words);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("finished 1 step"));
  }
  const ProcessResult two = finetune({"train", run.config(), "--max_steps", "1", "other.yaml"});
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("'other.yaml' is not of the form --key value"));
}

TEST(CommandLine, EndsQuietlyWhereTheReaderHasLeft) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  // The only reader of the pipe exits before anything is written.
  const ProcessResult result =
      finetune::testing::run({"bash", "-c",
                              "mkfifo " + pipe + "; (exec 4<" + pipe + ") & exec 3>" + pipe +
                                  "; wait; " + binary_path() + " config defaults >&3"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  const ProcessResult full =
      finetune::testing::run({"bash", "-c", binary_path() + " config defaults > /dev/full"});
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.err, HasSubstr("standard output cannot be written"));
}

TEST(ConfigCheck, LooksForFilesGlobsAndFolders) {
  const TinyRun run;
  const ProcessResult good = finetune({"config", "check", run.config()});
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("the files it names are there"));
  const std::string text = run.folder() / "nowhere.txt";
  const std::string tokenizer = run.folder() / "no/tokenizer";
  Arguments words = {"config",
                     "check",
                     run.config(),
                     "--train_file",
                     text,
                     "--validation_file",
                     run.folder() / "*.jsonl",
                     "--tokenizer_name",
                     tokenizer};
  const ProcessResult bad = finetune(words);
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("train_file: '" + text + "' does not exist"));
  EXPECT_THAT(bad.err, HasSubstr("validation_file: no file matches"));
  EXPECT_THAT(bad.err, HasSubstr("there is no folder '" + tokenizer + "'"));
  words.emplace_back("--no_files");
  EXPECT_EQ(finetune(words).code, 0);
}

TEST(ModelName, ThatIsAPathIsNotFetchedFromAHub) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "models/bert");
  ProcessOptions options;
  options.folder = folder.path();
  options.environment = {{"HF_HUB_CACHE", folder / "cache"}};
  const auto error_of = [&](const std::string& name) {
    const ProcessResult result = finetune({"predict", name, "--text", "a"}, options);
    EXPECT_EQ(result.code, 2) << result.err;
    return result.err;
  };
  for (const char* path : {"models/berd", "a/b/c", "./berd", "/nowhere/berd", "runs/none"}) {
    EXPECT_THAT(error_of(path), Not(HasSubstr("hf download"))) << path;
  }
  EXPECT_THAT(error_of("models/berd"), HasSubstr("did you mean 'models/bert'?"));
  EXPECT_THAT(error_of("modles"), HasSubstr("did you mean 'models'?"));
  EXPECT_THAT(error_of("nobody/nothing"), HasSubstr("hf download nobody/nothing"));
  // Folders next to the configuration are searched too.
  const std::string config = folder.write("run.yaml", "model_name_or_path: models/berd\n");
  const ProcessResult result =
      finetune({"config", "check", config, "--train_file", kText + "lighthouse.txt"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'models/bert'?"));
  EXPECT_THAT(result.err, Not(HasSubstr("hf download")));
}

}  // namespace
}  // namespace finetune::testing
