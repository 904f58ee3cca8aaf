// SPDX-License-Identifier: MIT
// train_file: [{path, weight}, ...]: several files in the requested proportions.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string mixture(const std::string& weight) {
  return "[{path: " + kText + "lighthouse.txt, weight: " + weight + "}, " + kText +
         "lighthouse-valid.txt]";
}

TinyRun::Keys mixed(const std::string& weight) { return {{"train_file", mixture(weight)}}; }

TEST(Mixture, HasTheSharesAndResumesInEqualBits) {
  const TinyRun unbroken(mixed("0.5"));
  const ProcessResult whole = unbroken.train();
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.err, AllOf(HasSubstr("mixture: "), HasSubstr("each 1 times")));
  const TinyRun run(mixed("0.5"));
  run.train_until(23);
  const ProcessResult rest = run.train();
  ASSERT_EQ(rest.code, 0) << rest.err;
  expect_equal(outcome_of(run), outcome_of(unbroken));
}

// Without a validation file a single file holds out its first rows; a mixture does not.
TEST(Mixture, HasEverySampleOfItsSmallestFile) {
  TinyRun run(TinyRun::Keys{{"validation_file", ""},
                            {"line_by_line", "true"},
                            {"eval_strategy", "no"},
                            {"do_eval", "false"}});
  std::string small;
  for (int i = 0; i < 60; ++i)
    small += "the keeper wrote down light number " + std::to_string(i) + "\n";
  run.folder().write("small.txt", small);
  run.set({{"train_file", "[{path: " + kText + "lighthouse.txt, weight: 1}, {path: " +
                              (run.folder() / "small.txt") + ", weight: 1}]"}});
  const ProcessResult result = run.train({"--max_steps", "1"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("data: 60 samples"),
                    HasSubstr("small.txt: 411 samples of an epoch's 822, each 6.85 times")));
}

TEST(Mixture, IsWhatTheRunIsMadeOf) {
  TinyRun run(mixed("0.5"));
  run.train_until(2);
  run.set(mixed("0.75"));
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("train_file_weights"), HasSubstr("0.75")));
}

TEST(Mixture, RefusesWhatIsNoWeight) {
  for (const char* weight : {"0", "-1", "nan", ".inf", "much", "1e400"}) {
    const TinyRun run(mixed(weight));
    const ProcessResult result = run.train();
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("run.yaml:"), HasSubstr("must be a number above 0")))
        << weight;
  }
  TinyRun run(TinyRun::Keys{{"train_file", "[{path: a.txt, weights: 2}]"}});
  EXPECT_THAT(run.train().err, HasSubstr("a list of {path: ..., weight: ...}"));
  run.set({{"train_file", mixture("2")}, {"validation_file", ""}});
  EXPECT_THAT(run.train().err, HasSubstr("set validation_file"));
}

TEST(Mixture, OfTheFileGivesWayToTheCommandLine) {
  const TinyRun run(mixed("2"));
  const ProcessResult result =
      run.train({"--max_steps", "1", "--train_file", kText + "lighthouse.txt"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err.find("mixture"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace finetune::testing
