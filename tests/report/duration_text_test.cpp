// SPDX-License-Identifier: MIT
#include "finetune/report/duration_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "finetune/report/figure_text.h"

namespace finetune {
namespace {

TEST(DurationText, IsWhatPeopleRead) {
  EXPECT_EQ(duration_text(0.0056), "5.6 ms");
  EXPECT_EQ(duration_text(0.5), "500 ms");
  EXPECT_EQ(duration_text(2.4), "2.4 s");
  EXPECT_EQ(duration_text(90), "90 s");
  EXPECT_EQ(duration_text(180), "3 min");
  EXPECT_EQ(duration_text(7200), "2.0 h");
  EXPECT_EQ(duration_text(2.4 * 3600), "2.4 h");
  EXPECT_EQ(duration_text(28 * 3600), "1 d 4 h");
  EXPECT_EQ(duration_text(48 * 3600), "2 d");
  EXPECT_EQ(duration_text(1e-9), "under 1 ms");
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(NAN), "?");
  EXPECT_EQ(duration_text(-1), "?");
}

TEST(RoundedFigure, KeepsSixDigitsOfEveryNumber) {
  EXPECT_EQ(rounded_figure(1234567.0), 1234570.0);
  EXPECT_EQ(rounded_figure(-0.12345678), -0.123457);
  EXPECT_EQ(rounded_figure(5e-324), 5e-324);
  EXPECT_EQ(rounded_figure(1.7e308), 1.7e308);
}

}  // namespace
}  // namespace finetune
