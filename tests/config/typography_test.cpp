// SPDX-License-Identifier: MIT
// Quotes, dashes and spaces of word processors and web pages.
#include "config/reading/typography.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load_helpers.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::load_error;

TEST(Typography, QuotesAndDashesAreNamedWithTheirPosition) {
  EXPECT_EQ(load_error("# “x” – y\nseed: 1\noutput_dir: “runs/x”\n"),
            "run.yaml: line 3, column 13: “ (U+201C) is a typographic quote; write \"");
  EXPECT_EQ(load_error("output_dir: ‘runs/x’\n"),
            "run.yaml: line 1, column 13: ‘ (U+2018) is a typographic quote; write '");
  EXPECT_EQ(load_error("learning_rate: 2e–5\n"),
            "run.yaml: line 1, column 18: – (U+2013) is a typographic dash; write -");
  EXPECT_EQ(load_error("train_file:\n- a.txt\n- „b.txt“\n"),
            "run.yaml: line 3, column 3: „ (U+201E) is a typographic quote; write \"");
}

TEST(Typography, SpacesAreNamedAlsoWhereTheyBreakTheFile) {
  EXPECT_EQ(load_error("seed: 1\n\u00A0max_steps: 2\n"),
            "run.yaml: line 2, column 1: U+00A0 is a no-break space; write a space");
  EXPECT_EQ(load_error("seed: 1\nmax_steps:\u00A02\n"),
            "run.yaml: line 2, column 11: U+00A0 is a no-break space; write a space");
  EXPECT_THAT(load_error("max_steps:\u00A02\nseed: 1\n"),
              HasSubstr("; line 1, column 11: U+00A0 is a no-break space; write a space"));
  EXPECT_THAT(load_error("{“seed”: 1}", "run.json"),
              HasSubstr("; line 1, column 2: “ (U+201C) is a typographic quote; write \""));
}

TEST(Typography, OfTheCommandLine) {
  EXPECT_EQ(load_error("", "run.yaml", {"--output_dir", "“runs/x”"}),
            "command line: --output_dir: “ (U+201C) is a typographic quote; write \"");
  EXPECT_THAT(load_error("", "run.yaml", {"—output_dir", "x"}),
              HasSubstr("'—output_dir' is not of the form --key value or --key=value; — (U+2014) "
                        "is a typographic dash; write -"));
}

TEST(Typography, MayBeMeant) {
  EXPECT_EQ(load_error("output_dir: Läufe – „neue“ 1\n"), "");
  EXPECT_EQ(load_error("output_dir: \"“x”\"\n"), "");
  EXPECT_EQ(load_error("run_name: über–morgen\n"), "");
}

}  // namespace
}  // namespace finetune
