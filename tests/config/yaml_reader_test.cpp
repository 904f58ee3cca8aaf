// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_error;
using testing::load_yaml;
using ::testing::StartsWith;

std::string repeated(const std::string& text, size_t times) {
  std::string result;
  for (size_t i = 0; i < times; ++i) result += text;
  return result;
}

TEST(YamlReader, TakesAnEmptyFileForDefaults) {
  EXPECT_EQ(load_yaml("").args.learning_rate, 5e-5);
  EXPECT_EQ(load_yaml("# nothing\n---\n").args.learning_rate, 5e-5);
}

TEST(YamlReader, TakesAByteOrderMarkAndWindowsLineEnds) {
  EXPECT_EQ(load_yaml("\xEF\xBB\xBFseed: 7\r\nlearning_rate: 1e-3\r\n").args.seed, 7);
}

TEST(YamlReader, RefusesAnchorsAliasesTagsAndMergeKeys) {
  EXPECT_GOLDEN(load_error("a: 1\nseed: &x 7\n"));
  EXPECT_THAT(load_error("train_file: &x [a]\n"), HasSubstr("anchors"));
  EXPECT_GOLDEN(load_error("seed: *x\n"));
  EXPECT_THAT(load_error("seed: &x 7\ndata_seed: *x\n"), HasSubstr("anchors"));
  EXPECT_THAT(load_error("seed: !!int 7\n"), HasSubstr("tags"));
  EXPECT_THAT(load_error("run_name: !!python/object/apply:os.system [ls]\n"), HasSubstr("tags"));
  EXPECT_GOLDEN(load_error("<<: {seed: 7}\n"));
}

TEST(YamlReader, RefusesAKeyThatIsThereTwice) {
  EXPECT_GOLDEN(load_error("seed: 1\nmax_steps: 2\nseed: 1\n"));
  EXPECT_GOLDEN(load_error("lr_scheduler_kwargs:\n  power: 1\n  power: 2\n"));
}

TEST(YamlReader, RefusesSeveralDocuments) { EXPECT_GOLDEN(load_error("seed: 1\n---\nseed: 2\n")); }

TEST(YamlReader, RefusesWhatIsNoMapping) {
  EXPECT_GOLDEN(load_error("- seed\n"));
  EXPECT_GOLDEN(load_error("just words\n"));
  EXPECT_GOLDEN(load_error("[a, b]: 1\n"));
  EXPECT_GOLDEN(load_error("~: 1\n"));
}

TEST(YamlReader, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(load_error("seed: 1\nmax_steps: [1\nlogging_steps: 5\n"),
              ::testing::AnyOf(StartsWith("run.yaml:2: is not valid YAML"),
                               StartsWith("run.yaml:3: is not valid YAML"),
                               StartsWith("run.yaml:4: is not valid YAML")));
  EXPECT_GOLDEN(load_error("seed: 1\n}\n"));
  EXPECT_GOLDEN(load_error("seed: 1\n  max_steps: 7\n"));
}

TEST(YamlReader, RefusesAQuoteThatIsNotClosedOnItsLine) {
  const std::string text = "must end with it on its line";
  EXPECT_EQ(load_error("seed: 1\nrun_name: \"abc\nmax_steps: 5\n"),
            "run.yaml:2: text that begins with \" " + text);
  EXPECT_THAT(load_error("# \xC3\xA9\r\nrun_name: 'a''\r\nseed: 5\r\n"), HasSubstr(text));
  EXPECT_THAT(load_error("run_name: \"a\\\"\nseed: 5\n"), HasSubstr(text));
  EXPECT_EQ(load_yaml("# \xC3\xA9\r\nrun_name: 'it''s'\r\n").args.run_name, "it's");
  EXPECT_EQ(load_yaml("run_name: \"a \\\" b\"\n").args.run_name, "a \" b");
  EXPECT_EQ(load_yaml("\xEF\xBB\xBF# \xC3\xA9\nrun_name: \"b\"\n").args.run_name, "b");
  EXPECT_EQ(load_yaml("run_name: |\n  b\n").args.run_name, "b\n");
}

TEST(YamlReader, SurvivesWhatBreaksItsLibrary) {
  for (const char* text : {"[:", "{:", "- [:", "{a: {:", "? ? ?", "[[[[[", "!<", "%YAML 9.9\n---",
                           "\"\\x", "'", "|9\n", ">-\n\t", "a: |\n\n\t\n", "{,}", "[,]", "? - :"}) {
    (void)load_error(text);
  }
}

TEST(YamlReader, RefusesDeepNesting) {
  const std::string deep = "nested deeper than 32 levels";
  EXPECT_GOLDEN(load_error("train_file: " + repeated("[", 10'000)));
  EXPECT_THAT(load_error("train_file: " + repeated("[", 10'000) + repeated("]", 10'000)),
              HasSubstr(deep));
  EXPECT_GOLDEN(load_error(repeated("{a: ", 10'000)));
  EXPECT_THAT(load_error(repeated("{a: ", 100) + "1" + repeated("}", 100)), HasSubstr(deep));
  EXPECT_THAT(load_error(repeated("- ", 10'000)), HasSubstr(deep));
  std::string blocks;
  for (size_t i = 0; i < 100; ++i) blocks += repeated(" ", i) + "a:\n";
  EXPECT_THAT(load_error(blocks), HasSubstr(deep));
}

TEST(YamlReader, RefusesALargeFile) { EXPECT_GOLDEN(load_error(std::string(2 << 20, '#'))); }

TEST(YamlReader, RefusesMoreValuesThanAConfigurationHas) {
  EXPECT_GOLDEN(load_error("train_file: [" + repeated("a,", 100'000) + "a]"));
}

TEST(YamlReader, RefusesBytesThatAreNotText) {
  EXPECT_GOLDEN(load_error("seed: 1\nrun_name: \xFF\n"));
  EXPECT_GOLDEN(load_error(std::string("seed: 1\0", 8)));
  EXPECT_GOLDEN(load_error("\xFF\xFEs\0e\0"));
  EXPECT_THAT(load_error("run_name: \"\\0\"\n"), HasSubstr("NUL"));
}

TEST(JsonReader, NamesTheLineOfAKey) {
  EXPECT_GOLDEN(load_error("{\n \"seed\": 1,\n \"note\": {\"a\": [1,\n 2]},\n \"save_step\": 5\n}",
                           "run.json"));
}

TEST(JsonReader, RefusesWhatJsonIsNot) {
  EXPECT_THAT(load_error("{\"seed\": 1, \"seed\": 2}", "run.json"), HasSubstr("twice"));
  EXPECT_GOLDEN(load_error("{\"seed\": 1,}", "run.json"));
  EXPECT_GOLDEN(load_error("[1]", "run.json"));
  EXPECT_GOLDEN(load_error("", "run.json"));
  EXPECT_THAT(load_error("{\"a\": " + repeated("[", 10'000), "run.json"), HasSubstr("deeper"));
  EXPECT_GOLDEN(load_error("{\"learning_rate\": 1e999}", "run.json"));
}

}  // namespace
}  // namespace finetune
