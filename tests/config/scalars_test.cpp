// SPDX-License-Identifier: MIT
#include "config/reading/scalars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::load_error;
using testing::load_yaml;

TEST(Scalars, ReadNumbersAsPeopleWriteThem) {
  const std::vector<std::pair<std::string, double>> table = {
      {"2e-5", 2e-5}, {"2E-5", 2e-5}, {"0.1", 0.1}, {".5", .5}, {"5.", 5},      {"3", 3},
      {"+1e3", 1e3},  {"1e+2", 100},  {"0", 0},     {"0.0", 0}, {"1e-07", 1e-7}};
  for (const auto& [text, value] : table) {
    EXPECT_EQ(load_yaml("optim: sgd\nlearning_rate: " + text).args.learning_rate, value) << text;
  }
}

TEST(Scalars, RefuseWhatIsNoNumberOrIsAmbiguous) {
  for (const char* text :
       {"1_000",    "010",   "0x10", "1,5",   "1e",   "e5",     ".",   "+",   "abc",   "1e5x",
        "--1",      "1.2.3", ".inf", "-.inf", ".nan", "inf",    "nan", "NaN", "1e999", "None",
        "\"1e-3\"", "'5'",   "true", "null",  "[1]",  "{a: 1}", "1 2", "١"}) {
    EXPECT_GOLDEN(load_error("learning_rate: " + std::string(text))) << text;
  }
}

TEST(Scalars, ReadWholeNumbers) {
  EXPECT_EQ(load_yaml("max_steps: -1").args.max_steps, -1);
  EXPECT_EQ(load_yaml("seed: +7").args.seed, 7);
  EXPECT_EQ(load_yaml("seed: 9223372036854775807").args.seed, INT64_MAX);
}

TEST(Scalars, RefuseWhatIsNoWholeNumber) {
  for (const char* text : {"1.0", "1e3", "010", "1_000", "0x10", "9223372036854775808", "\"5\"", "",
                           "five", "true", "0o17", "-9223372036854775809"}) {
    EXPECT_GOLDEN(load_error("seed: " + std::string(text))) << text;
  }
}

TEST(Scalars, SayHowToWriteWhatWasMeant) {
  EXPECT_GOLDEN(load_error("seed: 1_000"));
  EXPECT_GOLDEN(load_error("seed: 010"));
  EXPECT_GOLDEN(load_error("seed: \"5\""));
  EXPECT_GOLDEN(load_error("save_total_limit: None"));
  EXPECT_GOLDEN(load_error("do_eval: yes"));
  EXPECT_GOLDEN(load_error("do_eval: off"));
  EXPECT_GOLDEN(load_error("do_eval: 0"));
  EXPECT_GOLDEN(load_error("do_eval: \"true\""));
}

TEST(Scalars, ReadBooleansInTheSpellingsOfYamlsCore) {
  for (const char* text : {"true", "True", "TRUE"}) {
    EXPECT_TRUE(load_yaml("line_by_line: " + std::string(text)).args.line_by_line) << text;
  }
  for (const char* text : {"false", "False", "FALSE"}) {
    EXPECT_FALSE(load_yaml("do_train: " + std::string(text)).args.do_train) << text;
  }
}

TEST(Scalars, TakeNoForAWordWhereWordsAreMeant) {
  EXPECT_EQ(load_yaml("eval_strategy: no\nsave_strategy: 'no'").args.save_strategy, "no");
}

TEST(Scalars, UnsetWhatMayBeUnset) {
  for (const char* text : {"null", "~", "", "NULL"}) {
    const LoadedConfig config = load_yaml("save_total_limit: " + std::string(text));
    EXPECT_FALSE(config.args.save_total_limit.has_value()) << text;
  }
  EXPECT_GOLDEN(load_error("learning_rate: null"));
}

TEST(Scalars, KeepQuotedAndNumericText) {
  EXPECT_EQ(load_yaml("run_name: 2024").args.run_name, "2024");
  EXPECT_EQ(load_yaml("run_name: \"null\"").args.run_name, "null");
  EXPECT_EQ(load_yaml("run_name: 'a: b # c'").args.run_name, "a: b # c");
}

TEST(Scalars, ShortenLongValuesInMessages) {
  EXPECT_LT(load_error("seed: " + std::string(100'000, 'x')).size(), 200U);
}

}  // namespace
}  // namespace finetune
