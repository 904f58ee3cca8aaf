// SPDX-License-Identifier: MIT
// `finetune tokenizer` for users.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/file_system.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

struct Outcome {
  int exit_code;
  std::string output;
  std::string errors;
};

// Runs `finetune tokenizer ARGUMENTS` in a separate folder with `input` on standard input.
class TokenizerCommand : public ::testing::Test {
 protected:
  Outcome run(const std::string& arguments, const std::string& input = "",
              const std::string& output = "out") {
    folder_.write("in", input);
    const std::string command = "cd '" + folder_.path() + "' && '" + binary_path() +
                                "' tokenizer " + arguments + " <in >" + output + " 2>err";
    const int status = std::system(command.c_str());
    FileSystem& files = FileSystem::local();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            output == "out" ? files.read_all(folder_ / "out") : "",
            files.read_all(folder_ / "err")};
  }

  Outcome train(const std::string& options) {
    return run("train --output tok " + options + " '" + source_dir() +
               "/tests/fixtures/tokenizer/corpus.txt'");
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizerCommand, TrainsEncodesAndDecodes) {
  const Outcome trained = train("--vocab_size 420");
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_THAT(trained.errors, HasSubstr("420 tokens"));
  EXPECT_EQ(trained.output, "");
  const std::string text = "La suno brilas\n\n it's <mask>\n";
  const Outcome plain = run("encode --tokenizer tok", text);
  ASSERT_EQ(plain.exit_code, 0) << plain.errors;
  EXPECT_EQ(run("decode --tokenizer tok", plain.output).output, text);
  const Outcome special = run("encode --tokenizer tok --add_special_tokens", "\n");
  EXPECT_EQ(special.output, "0 2\n");
  EXPECT_EQ(run("decode --tokenizer tok", special.output).output, "<s></s>\n");
  EXPECT_EQ(run("decode --tokenizer tok --skip_special_tokens", special.output).output, "\n");
}

// Other suites train with it.
TEST_F(TokenizerCommand, MakesTheTokenizerOfTheFixtures) {
  const std::string fixtures = source_dir() + "/tests/fixtures/";
  const Outcome trained = run("train --type byte_level_bpe --vocab_size 300 --output tok '" +
                              fixtures + "text/lighthouse.txt'");
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  FileSystem& files = FileSystem::local();
  for (const std::string name : {"tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(files.read_all(folder_ / ("tok/" + name)),
              files.read_all(fixtures + "tokenizers/lighthouse_300/" + name));
  }
}

TEST_F(TokenizerCommand, WarnsOfAVocabularyThatIsSmallerThanTheBytes) {
  const Outcome trained = train("--vocab_size 10");
  EXPECT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_THAT(trained.errors, HasSubstr("261 tokens, more than --vocab_size 10"));
}

TEST_F(TokenizerCommand, ReplacesAnotherTokenizerOnlyWhenTold) {
  ASSERT_EQ(train("--vocab_size 300").exit_code, 0);
  EXPECT_EQ(train("--vocab_size 300").exit_code, 0) << "the same one again";
  const Outcome other = train("--vocab_size 310");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.errors, AllOf(HasSubstr("tok/tokenizer.json"), HasSubstr("--overwrite")));
  EXPECT_EQ(train("--vocab_size 310 --overwrite").exit_code, 0);
}

TEST_F(TokenizerCommand, TrainsSentencePieceModels) {
  for (const char* type : {"sentencepiece_unigram", "sentencepiece_bpe"}) {
    const std::string options = "--vocab_size 150 --overwrite --user_defined_symbols _NEWLINE_,_X_";
    const Outcome trained = train(options + " --type " + type);
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    EXPECT_THAT(trained.errors, HasSubstr("150 pieces out of"));
    EXPECT_THAT(trained.errors, ::testing::Not(HasSubstr("LOG("))) << "the library's own log";
    EXPECT_THAT(run("encode --tokenizer tok --add_special_tokens", "[MASK]_X_\n").output,
                ::testing::MatchesRegex("4 6 [0-9]+ 8 5\n"));
    for (const char* name : {"spiece.model", "spiece.vocab", "tokenizer.json"}) {
      EXPECT_TRUE(FileSystem::local().exists(folder_ / "tok" + "/" + name)) << name;
    }
    EXPECT_EQ(train(std::string("--vocab_size 151 --type ") + type).exit_code, 2)
        << "another one is there";
  }
  ASSERT_EQ(train("--vocab_size 300 --overwrite").exit_code, 0);
  EXPECT_FALSE(FileSystem::local().exists(folder_ / "tok/spiece.model"));
}

TEST_F(TokenizerCommand, RefusesOptionsOfAnotherType) {
  const Outcome type = train("--vocab_size 300 --type wordpiece");
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_THAT(type.errors, AllOf(HasSubstr("'wordpiece'"), HasSubstr("sentencepiece_bpe")));
  const Outcome frequency = train("--vocab_size 300 --type sentencepiece_bpe --min_frequency 2");
  EXPECT_EQ(frequency.exit_code, 2);
  EXPECT_THAT(frequency.errors, HasSubstr("--min_frequency has no meaning"));
  EXPECT_EQ(train("--vocab_size 300 --byte_fallback").exit_code, 2);
  const Outcome size = train("--vocab_size 90000 --type sentencepiece_unigram");
  EXPECT_EQ(size.exit_code, 2);
  EXPECT_THAT(size.errors, HasSubstr("the largest that works is"));
}

TEST_F(TokenizerCommand, NamesTheLineThatItCannotUse) {
  ASSERT_EQ(train("--vocab_size 300").exit_code, 0);
  const Outcome text = run("encode --tokenizer tok", "good\nb\xFF-\n");
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.errors, HasSubstr("standard input:2: is not valid UTF-8"));
  const Outcome ids = run("decode --tokenizer tok", "5\n5 300\n");
  EXPECT_EQ(ids.exit_code, 1);
  EXPECT_THAT(ids.errors, HasSubstr("standard input:2: '300' is not a token id"));
}

TEST_F(TokenizerCommand, SaysWhenItsOutputCannotBeWritten) {
  ASSERT_EQ(train("--vocab_size 300").exit_code, 0);
  const Outcome outcome = run("encode --tokenizer tok", "a\n", "/dev/full");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("standard output cannot be written"));
}

TEST_F(TokenizerCommand, RefusesAWrongCommandLine) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("encode").exit_code, 2);
  EXPECT_EQ(train("--vocab_size many").exit_code, 2);
  EXPECT_EQ(train("--vocab_size 300 --special_tokens '<s>'").exit_code, 2);
  EXPECT_EQ(run("encode --tokenizer /no/such/folder").exit_code, 1);
  EXPECT_EQ(run("--help").exit_code, 0);
}

}  // namespace
}  // namespace finetune
