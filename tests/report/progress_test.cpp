// SPDX-License-Identifier: MIT
#include "finetune/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>

#include "finetune/base/log.h"

namespace finetune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProgressTest : public ::testing::Test {
 protected:
  ProgressOutput output(bool is_terminal = true) {
    return {.now = [this] { return now_; },
            .write = [this](std::string_view text) { writes_.emplace_back(text); },
            .width = [this] { return width_; },
            .is_terminal = is_terminal};
  }

  std::string everything() const {
    std::string all;
    for (const std::string& text : writes_) all += text;
    return all;
  }

  // Returns what a terminal shows, line by line, without trailing spaces.
  std::vector<std::string> screen() const {
    std::vector<std::string> lines(1);
    size_t column = 0;
    for (const char c : everything()) {
      if (c == '\n') {
        lines.emplace_back();
        column = 0;
      } else if (c == '\r') {
        column = 0;
      } else {
        std::string& line = lines.back();
        if (line.size() <= column) line.resize(column + 1, ' ');
        line[column++] = c;
      }
    }
    for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
    return lines;
  }

  double now_ = 1000;
  int width_ = 120;
  std::vector<std::string> writes_;
};

TEST_F(ProgressTest, ShowsEverythingOnOneLine) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000);
  now_ += 72;
  display.update(
      740, {.loss = 4.2134, .learning_rate = 6.3e-4, .tokens_per_second = 8432, .memory_mib = 512});
  EXPECT_EQ(writes_.back(),
            "\rtrain  37% |#######             | 740/2000 [01:12<02:02, 10.3 step/s, 8.4k tok/s] "
            "loss 4.213 lr 6.3e-04 mem 512 MiB");
}

TEST_F(ProgressTest, ShowsTheShareOfTheMeasuredCeiling) {
  width_ = 160;
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000);
  now_ += 72;
  display.update(740, {.loss = 4.2, .tokens_per_second = 8432, .ceiling_share = 0.414});
  EXPECT_THAT(writes_.back(), HasSubstr("8.4k tok/s, 41% of ceiling] loss 4.2"));
  width_ = 90;  // tokens per second are more important
  now_ += 1;
  display.update(741);
  EXPECT_THAT(writes_.back(), HasSubstr("tok/s] loss"));
}

TEST_F(ProgressTest, StartsEveryDrawingWithTheReturnAndEndsNoneWithIt) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10);
  for (int step = 1; step <= 10; ++step) {
    now_ += 1;
    display.update(step, {.loss = 1.0 / step});
  }
  ASSERT_EQ(writes_.size(), 11U);
  for (const std::string& text : writes_) {
    EXPECT_THAT(text, StartsWith("\r"));
    EXPECT_THAT(text, Not(EndsWith("\r")));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0);
  }
}

TEST_F(ProgressTest, ErasesNoMoreThanTheWidthOfANarrowedTerminal) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000);
  now_ += 72;
  display.update(740, {.loss = 4.2134, .learning_rate = 6.3e-4, .tokens_per_second = 8432});
  ASSERT_GT(writes_.back().size(), 80U);
  width_ = 40;
  const size_t before = writes_.size();
  display.log(741, {.loss = 4.2});
  EXPECT_EQ(writes_.at(before), "\r" + std::string(39, ' ') + "\r");
}

TEST_F(ProgressTest, DrawsAtMostTwiceASecond) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 100000);
  for (int step = 1; step <= 10000; ++step) {
    now_ += 0.001;
    display.update(step);
  }
  EXPECT_LE(writes_.size(), 1U + 20U);
  EXPECT_GE(writes_.size(), 1U + 19U);
}

TEST_F(ProgressTest, NeverWritesTheLastColumn) {
  const ProgressFigures figures = {
      .loss = 4.2, .learning_rate = 1e-4, .tokens_per_second = 1e6, .memory_mib = 123456};
  for (int width = 1; width <= 140; ++width) {
    width_ = width;
    writes_.clear();
    ProgressDisplay display(ProgressMode::kBar, output());
    display.begin("tokenise-é", 2000000);
    now_ += 100;
    display.update(1000000, figures);
    for (const std::string& text : writes_) {
      const auto columns =
          std::count_if(text.begin() + 1, text.end(), [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(columns, std::max(width - 1, 1)) << text;
    }
    display.end();
  }
}

TEST_F(ProgressTest, DropsTheLeastFiguresOnANarrowTerminal) {
  width_ = 70;
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000);
  now_ += 72;
  display.update(
      740, {.loss = 4.2134, .learning_rate = 6.3e-4, .tokens_per_second = 8432, .memory_mib = 512});
  EXPECT_EQ(writes_.back(),
            "\rtrain  37% |###      | 740/2000 [01:12<02:02, 10.3 step/s] loss 4.213");
}

TEST_F(ProgressTest, ShowsLossAndRemainingTimeIn40Columns) {
  width_ = 40;
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000);
  now_ += 72;
  display.update(740, {.loss = 4.2134, .learning_rate = 6.3e-4, .tokens_per_second = 8432});
  EXPECT_EQ(screen().back(), "train  37% 740/2000 loss 4.213 <02:02");
  EXPECT_EQ(screen().size(), 1U);
}

TEST_F(ProgressTest, ShowsEpochNextSaveAndSessionWhereThereIsRoom) {
  width_ = 200;
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000);
  now_ += 72;
  display.update(740,
                 {.loss = 4.2134, .epoch = 1.85, .next_save = 750, .session_seconds_left = 11530});
  EXPECT_THAT(writes_.back(), EndsWith("loss 4.213 epoch 1.85 next save 750 session 3:12:10 left"));
  now_ += 72;
  display.update(750, {});
  EXPECT_THAT(writes_.back(), HasSubstr("epoch 1.85 session 3:12:10 left")) << "it has been saved";
}

TEST_F(ProgressTest, ShowsNoNextSaveThatIsReached) {
  width_ = 200;
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 12);
  now_ += 10;
  display.update(11, {.next_save = 12});
  EXPECT_THAT(writes_.back(), HasSubstr("next save 12"));
  now_ += 10;
  display.update(12);  // the last step has no next save
  EXPECT_THAT(writes_.back(), Not(HasSubstr("next save")));
}

TEST_F(ProgressTest, ShowsWhenItWillEnd) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  ProgressOutput with_clock = output();
  with_clock.unix_time = [] { return 1763900000.0; };  // 12:13:20
  ProgressDisplay display(ProgressMode::kPlain, with_clock);
  display.begin("train", 1000);
  now_ += 60;
  display.update(10);  // 99 minutes to go
  EXPECT_THAT(everything(), HasSubstr(" ends 13:52\n"));
  now_ += 6000;
  display.update(11);  // now days to go
  EXPECT_THAT(everything(), HasSubstr(" ends Nov 29 "));
}

TEST_F(ProgressTest, PaintsWithoutMovingColumns) {
  ProgressOutput colored = output();
  colored.has_color = true;
  ProgressDisplay display(ProgressMode::kBar, colored);
  display.begin("train", 10);
  now_ += 1;
  display.update(5);
  EXPECT_EQ(writes_.back(),
            "\r\x1b[1mtrain\x1b[0m  50% |\x1b[32m##########          \x1b[0m| 5/10 [00:01<00:01, "
            "5.00 step/s]");
  display.end();
}

TEST_F(ProgressTest, WritesJsonObjects) {
  ProgressDisplay display(ProgressMode::kJson, output());
  display.begin("train", 10);
  now_ += 0.5;
  display.update(1, {.loss = 2.5});
  now_ += 1;
  display.update(2, {.loss = 2.25, .next_save = 5});
  display.log(2, {.learning_rate = 1e-3});
  display.end();
  EXPECT_EQ(everything(),
            R"({"event":"begin","phase":"train","unit":"step","done":0,"total":10,"elapsed":0.0}
{"event":"update","phase":"train","unit":"step","done":2,"total":10,"elapsed":1.5,"per_second":1.33333,"seconds_left":6.0,"loss":2.25,"next_save":5}
{"event":"log","phase":"train","unit":"step","done":2,"total":10,"elapsed":1.5,"per_second":1.33333,"seconds_left":6.0,"loss":2.25,"learning_rate":0.001,"next_save":5}
{"event":"end","phase":"train","unit":"step","done":2,"total":10,"elapsed":1.5,"per_second":1.33333,"seconds_left":6.0,"loss":2.25,"learning_rate":0.001,"next_save":5}
)");
}

TEST_F(ProgressTest, TellsItsObserverInEveryMode) {
  for (const ProgressMode mode : {ProgressMode::kBar, ProgressMode::kPlain, ProgressMode::kNone}) {
    ProgressDisplay display(mode, output());
    std::vector<std::string> seen;
    display.observe([&](const ProgressSnapshot& snapshot) {
      seen.push_back(snapshot.phase + " " + std::to_string(snapshot.done));
    });
    display.begin("train", 10);
    display.update(3);
    display.begin("evaluate", 4);
    display.end();
    display.log(4);
    display.end();
    EXPECT_EQ(seen, (std::vector<std::string>{"train 0", "train 3", "evaluate 0", "train 4"}));
  }
}

TEST_F(ProgressTest, CoversALongerLineThatStoodThere) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("a phase with a long name", 100);
  display.begin("short", 100);
  EXPECT_EQ(screen(),
            std::vector<std::string>({"short   0% |                    | 0/100 [00:00<?]"}));
}

TEST_F(ProgressTest, CountsFromWhereARunWasResumed) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 2000, 1000);
  now_ += 10;
  display.update(1100);
  EXPECT_THAT(writes_.back(), HasSubstr("1100/2000 [00:10<01:30, 10.0 step/s]"));
}

TEST_F(ProgressTest, FollowsARateThatChanges) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 1000000);
  int64_t done = 0;
  for (int second = 0; second < 600; ++second) {
    now_ += 1;
    display.update(done += 100);
  }
  for (int second = 0; second < 180; ++second) {
    now_ += 1;
    display.update(done += 10);
  }
  EXPECT_THAT(writes_.back(), HasSubstr("10.0 step/s"));
}

TEST_F(ProgressTest, GivesSecondsForASlowStepAndHoursForALongRun) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10000);
  now_ += 8;
  display.update(2);
  EXPECT_THAT(writes_.back(), HasSubstr("[00:08<11:06:32, 4.00 s/step]"));
}

TEST_F(ProgressTest, NeedsNoTotal) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("read", 0, 0, "line");
  now_ += 10;
  display.update(52000);
  EXPECT_EQ(writes_.back(), "\rread 52000 line [00:10, 5.2k line/s]");
}

TEST_F(ProgressTest, GivesTheLineToAnEvaluationAndTakesItBack) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10);
  now_ += 1;
  display.update(5);
  display.begin("evaluate", 4);
  EXPECT_THAT(screen().back(), StartsWith("evaluate"));
  now_ += 1;
  display.update(4);
  display.end();
  ASSERT_EQ(screen().size(), 1U);
  EXPECT_THAT(screen().back(), StartsWith("train  50%"));
}

TEST_F(ProgressTest, LeavesTheLastStateAsALine) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10);
  now_ += 0.1;
  display.update(10);
  display.end();
  ASSERT_EQ(screen().size(), 2U);
  EXPECT_THAT(screen()[0], StartsWith("train 100% |####################| 10/10"));
  EXPECT_EQ(screen()[1], "");
}

TEST_F(ProgressTest, LeavesNoSecondLineForALastStepThatWasLogged) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10);
  now_ += 2;
  display.log(10);
  display.end();
  EXPECT_EQ(screen(),
            std::vector<std::string>({"train 10/10 (100%) [00:02<00:00, 5.00 step/s]", ""}));
}

TEST_F(ProgressTest, EndsWhatIsOpenWhenAnErrorPassesThrough) {
  {
    ProgressDisplay display(ProgressMode::kBar, output());
    display.begin("train", 10);
    display.begin("evaluate", 10);
  }
  EXPECT_THAT(everything(), EndsWith("\n"));
  const size_t before = writes_.size();
  ::testing::internal::CaptureStderr();
  log::info("afterwards");
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(writes_.size(), before);
}

TEST_F(ProgressTest, MakesRoomForLogLines) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10);
  const std::string bar = screen().back();
  writes_.clear();
  ::testing::internal::CaptureStderr();
  log::info("a checkpoint was saved");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "a checkpoint was saved\n");
  ASSERT_EQ(writes_.size(), 2U);
  EXPECT_EQ(writes_[0], "\r" + std::string(bar.size(), ' ') + "\r");
  EXPECT_EQ(writes_[1], "\r" + bar);
}

TEST_F(ProgressTest, KeepsALoggedStepAboveTheBar) {
  ProgressDisplay display(ProgressMode::kBar, output());
  display.begin("train", 10);
  now_ += 2;
  display.log(4, {.loss = 3.5, .learning_rate = 1e-3});
  ASSERT_EQ(screen().size(), 2U);
  EXPECT_EQ(screen()[0], "train 4/10 (40%) [00:02<00:03, 2.00 step/s] loss 3.5 lr 1.0e-03");
  EXPECT_THAT(screen()[1], StartsWith("train  40% |########"));
}

TEST_F(ProgressTest, WritesPlainLinesOffATerminal) {
  ProgressDisplay display(ProgressMode::kAuto, output(false));
  EXPECT_EQ(display.mode(), ProgressMode::kPlain);
  display.begin("train", 10);
  for (int step = 1; step <= 10; ++step) {
    now_ += 1;
    step % 5 == 0 ? display.log(step) : display.update(step);
  }
  display.end();
  EXPECT_EQ(everything(),
            "train 5/10 (50%) [00:05<00:05, 1.00 step/s]\n"
            "train 10/10 (100%) [00:10<00:00, 1.00 step/s]\n");
}

TEST_F(ProgressTest, WritesAPlainLineAMinuteWhereNothingIsLogged) {
  ProgressDisplay display(ProgressMode::kPlain, output());
  display.begin("train", 100000);
  for (int second = 1; second <= 600; ++second) {
    now_ += 1;
    display.update(second);
  }
  EXPECT_EQ(writes_.size(), 10U);
  EXPECT_EQ(everything().find('\r'), std::string::npos);
}

TEST_F(ProgressTest, WritesOneLineForAPhaseThatNothingIsLoggedIn) {
  ProgressDisplay display(ProgressMode::kPlain, output());
  display.begin("evaluate", 20, 0, "batch");
  now_ += 4;
  display.update(20);
  display.end();
  EXPECT_EQ(everything(), "evaluate 20/20 (100%) [00:04<00:00, 5.00 batch/s]\n");
}

TEST_F(ProgressTest, ShowsAStepFromItsSecondSecondOn) {
  ProgressDisplay display(ProgressMode::kBar, output());
  for (int part = 0; part <= 8; ++part) {
    display.step("hash", part, 8, "kB");
    now_ += 0.25;
  }
  const std::string bar = "hash  50% |##########          | 4/8 [00:01<00:01, 4.00 kB/s]";
  EXPECT_EQ(writes_.front(), "\r" + bar);
  EXPECT_EQ(screen(), (std::vector<std::string>{
                          "hash 100% |####################| 8/8 [00:02<00:00, 4.00 kB/s]", ""}));
}

TEST_F(ProgressTest, IsSilentAboutAStepThatIsQuick) {
  ProgressDisplay display(ProgressMode::kBar, output());
  for (int step = 0; step < 20; ++step) {
    for (int part = 0; part <= 3; ++part) {
      display.step("check", part, 3, "piece");
      now_ += 0.3;
    }
  }
  EXPECT_TRUE(writes_.empty());
}

TEST_F(ProgressTest, EndsAStepThatCameToNoEndWithWhatComesNext) {
  ProgressDisplay display(ProgressMode::kPlain, output());
  display.begin("tokenise", 10, 0, "kB");
  display.step("hash", 0, 8, "kB");
  now_ += 2;
  display.step("hash", 4, 8, "kB");
  display.step("check", 0, 8, "kB");
  now_ += 2;
  display.step("check", 4, 8, "kB");
  display.update(10);
  display.end();
  display.step("check", 0, 1, "kB");
  display.end();
  EXPECT_EQ(everything(),
            "hash 4/8 (50%) [00:02<00:02, 2.00 kB/s]\n"
            "check 4/8 (50%) [00:02<00:02, 2.00 kB/s]\n"
            "tokenise 10/10 (100%) [00:04<00:00, 2.50 kB/s]\n");
}

TEST_F(ProgressTest, IsSilentWhereItIsSwitchedOff) {
  ProgressDisplay display(ProgressMode::kNone, output());
  display.begin("train", 10);
  now_ += 100;
  display.update(5);
  display.log(6);
  display.end();
  EXPECT_TRUE(writes_.empty());
}

TEST_F(ProgressTest, ShowsALossThatIsNotANumber) {
  ProgressDisplay display(ProgressMode::kPlain, output());
  display.begin("train", 10);
  now_ += 1;
  display.log(1, {.loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_THAT(everything(), HasSubstr("loss nan"));
}

TEST_F(ProgressTest, ForecastsWithoutTheSlowFirstSteps) {
  ProgressDisplay display(ProgressMode::kBar, output());
  std::vector<std::optional<double>> left;
  display.observe(
      [&](const ProgressSnapshot& snapshot) { left.push_back(snapshot.seconds_left()); });
  display.begin("train", 1000, 500);
  for (int step = 501; step <= 520; ++step) {
    now_ += step <= 503 ? 10 : 0.5;
    display.update(step);
  }
  ASSERT_EQ(left.size(), 21U);
  EXPECT_NEAR(*left.at(3), 497 * 10, 1e-6);  // nothing else is known
  EXPECT_NEAR(*left.at(6), 494 * 0.5, 1e-6);
  EXPECT_NEAR(*left.at(20), 480 * 0.5, 1e-6);
}

TEST_F(ProgressTest, WrapsTextOnATerminalOnly) {
  width_ = 90;
  EXPECT_EQ(ProgressDisplay(ProgressMode::kAuto, output(true)).text_columns(), 89);
  EXPECT_EQ(ProgressDisplay(ProgressMode::kPlain, output(true)).text_columns(), 89);
  EXPECT_EQ(ProgressDisplay(ProgressMode::kJson, output(true)).text_columns(), std::nullopt);
  EXPECT_EQ(ProgressDisplay(ProgressMode::kAuto, output(false)).text_columns(), std::nullopt);
}

TEST_F(ProgressTest, TakesATerminalForABar) {
  EXPECT_EQ(ProgressDisplay(ProgressMode::kAuto, output(true)).mode(), ProgressMode::kBar);
}

}  // namespace
}  // namespace finetune
