// SPDX-License-Identifier: MIT
// Quotes, dashes and spaces of word processors and web pages.
#include "config/reading/typography.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::load_error;

TEST(Typography, QuotesAndDashesAreNamedWithTheirPosition) {
  EXPECT_GOLDEN(load_error("# “x” – y\nseed: 1\noutput_dir: “runs/x”\n"));
  EXPECT_GOLDEN(load_error("output_dir: ‘runs/x’\n"));
  EXPECT_GOLDEN(load_error("learning_rate: 2e–5\n"));
  EXPECT_GOLDEN(load_error("train_file:\n- a.txt\n- „b.txt“\n"));
}

TEST(Typography, SpacesAreNamedAlsoWhereTheyBreakTheFile) {
  EXPECT_GOLDEN(load_error("seed: 1\n\u00A0max_steps: 2\n"));
  EXPECT_GOLDEN(load_error("seed: 1\nmax_steps:\u00A02\n"));
  EXPECT_GOLDEN(load_error("max_steps:\u00A02\nseed: 1\n"));
  EXPECT_GOLDEN(load_error("{“seed”: 1}", "run.json"));
}

TEST(Typography, OfTheCommandLine) {
  EXPECT_GOLDEN(load_error("", "run.yaml", {"--output_dir", "“runs/x”"}));
  EXPECT_GOLDEN(load_error("", "run.yaml", {"—output_dir", "x"}));
}

TEST(Typography, MayBeMeant) {
  EXPECT_EQ(load_error("output_dir: Läufe – „neue“ 1\n"), "");
  EXPECT_EQ(load_error("output_dir: \"“x”\"\n"), "");
  EXPECT_EQ(load_error("run_name: über–morgen\n"), "");
}

}  // namespace
}  // namespace finetune
