// SPDX-License-Identifier: MIT
#include "finetune/report/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/report/session_log.h"
#include "support/fault_injecting_file_system.h"
#include "support/golden.h"

namespace finetune::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

Json loss_at(int64_t step, double loss) {
  return {{"loss", loss}, {"epoch", static_cast<double>(step) / 10}, {"step", step}};
}

std::vector<Json> log_of(int64_t steps) {
  std::vector<Json> log;
  for (int64_t step = 1; step <= steps; ++step) {
    log.push_back(loss_at(step, 1.0 / static_cast<double>(step)));
  }
  return log;
}

class MetricsFileTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string text() const {
    return files_.exists(path_) ? files_.read_all(path_) : "";
  }
  [[nodiscard]] std::vector<Json> lines() const {
    std::vector<Json> lines;
    EXPECT_EQ(read_json_lines(files_, path_,
                              [&](Json&& line, uint64_t) {
                                lines.push_back(std::move(line));
                                return true;
                              }),
              0);
    return lines;
  }
  // Simulates a session that restores the log before `first` and logs the steps `first` to `last`.
  void log_session(int64_t first, int64_t last, int64_t session) {
    MetricsFile file(files_, path_);
    file.match(log_of(first - 1));
    for (const Json& record : log_of(last)) {
      if (record["step"] < first) continue;
      file.append(record, {.unix_time = 1000.5 + record["step"].get<double>(), .session = session});
    }
  }

  TemporaryFolder folder_;
  FileSystem& files_ = FileSystem::local();
  std::string path_ = folder_ / "metrics.jsonl";
};

TEST_F(MetricsFileTest, IsWrittenAgainWhereItWasDeletedDuringTheRun) {
  MetricsFile file(files_, path_);
  file.match({});
  file.append(loss_at(1, 1.0), {});
  EXPECT_FALSE(file.is_changed());
  files_.remove_file(path_);
  EXPECT_TRUE(file.is_changed());
  file.match(log_of(1));
  file.append(loss_at(2, 0.5), {});
  file.sync();
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0]["step"], 1);
  EXPECT_EQ(lines()[1]["loss"], 0.5);
}

// As a suspended machine does for a moment after another one has taken over.
TEST_F(MetricsFileTest, DropsTheLinesOfAnotherWriterAndKeepsItsOwnTimes) {
  MetricsFile file(files_, path_);
  file.match({});
  file.append(loss_at(1, 1.0), {.unix_time = 1001.5, .session = 2});
  files_.append(path_)->write("{\"step\":1,\"epoch\":0.1,\"time\":7.0,\"loss\":9.0}\n");
  file.append(loss_at(2, 0.5), {.unix_time = 1002.5, .session = 2});
  EXPECT_TRUE(file.is_changed());
  file.match({loss_at(1, 1.0), loss_at(2, 0.5)});
  EXPECT_FALSE(file.is_changed());
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0]["time"], 1001.5);
  EXPECT_EQ(lines()[1]["loss"], 0.5);
  EXPECT_EQ(lines()[1]["time"], 1002.5);
}

TEST_F(MetricsFileTest, HoldsWhatWasLoggedWithTimeAndSession) {
  MetricsFile file(files_, path_);
  file.match({});
  file.append(
      loss_at(10, 4.25),
      {.unix_time = 1763900000.25, .session = 2, .tokens_per_second = 8412.5, .memory_mib = 913});
  EXPECT_EQ(text(),
            "{\"step\":10,\"epoch\":1.0,\"time\":1763900000.25,\"session\":2,"
            "\"tokens_per_second\":8412.5,\"memory_mib\":913,\"loss\":4.25}\n");
}

TEST_F(MetricsFileTest, IsCutAtTheResumedStepAndKeepsTheTimesBeforeIt) {
  log_session(1, 9, 1);
  log_session(6, 8, 2);  // killed after 9, resumed from 5
  const std::vector<Json> found = lines();
  ASSERT_EQ(found.size(), 8U);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]["step"], i + 1);
    EXPECT_EQ(found[i]["session"], i < 5 ? 1 : 2);
    EXPECT_EQ(found[i]["time"], 1001.5 + static_cast<double>(i));
  }
}

TEST_F(MetricsFileTest, IsRebuiltFromTheLogWhereItIsMissingOrHalfWritten) {
  log_session(1, 4, 1);
  const std::string complete = text();
  for (size_t bytes = 0; bytes <= complete.size(); ++bytes) {
    files_.write_atomically(path_, complete.substr(0, bytes));
    MetricsFile file(files_, path_);
    file.match(log_of(4));
    const std::vector<Json> found = lines();
    ASSERT_EQ(found.size(), 4U) << bytes;
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i]["loss"], 1.0 / static_cast<double>(i + 1));
  }
  files_.remove_file(path_);
  MetricsFile file(files_, path_);
  file.match(log_of(3));
  EXPECT_EQ(lines().size(), 3U);
}

TEST_F(MetricsFileTest, CutsALineOfTheSameStepThatTheLogDoesNotHave) {
  {
    MetricsFile file(files_, path_);
    file.match({});
    file.append(loss_at(1, 0.5), {});
    file.append({{"eval_loss", 0.75}, {"epoch", 0.1}, {"step", 1}}, {});
  }
  MetricsFile file(files_, path_);
  file.match({loss_at(1, 0.5)});
  EXPECT_THAT(text(), Not(HasSubstr("eval_loss")));
  file.match({loss_at(1, 0.25)});
  EXPECT_EQ(lines().at(0)["loss"], 0.25);
}

TEST_F(MetricsFileTest, MatchesNaNThatTheLogKeepsAsNull) {
  {
    MetricsFile file(files_, path_);
    file.match({});
    file.append(loss_at(1, std::nan("")), {.unix_time = 7});
  }
  MetricsFile file(files_, path_);
  Json record = loss_at(1, 0);
  record["loss"] = nullptr;
  file.match({record});
  EXPECT_EQ(lines().at(0)["time"], 7);
}

TEST_F(MetricsFileTest, WarnsOnceWhileTheDiskIsFullAndLosesNothingOnceItIsNot) {
  FaultInjectingFileSystem faulty(files_, folder_ / "");
  MetricsFile file(faulty, path_);
  file.match({});
  file.append(loss_at(1, 1), {});
  ::testing::internal::CaptureStderr();
  faulty.fail_from(faulty.operations() + 1);
  for (int64_t step = 2; step <= 5; ++step) file.append(loss_at(step, 1), {});
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(warnings.find("training continues"), warnings.rfind("training continues")) << warnings;
  EXPECT_GOLDEN(warnings);
  faulty.fail_from(std::numeric_limits<int64_t>::max());
  file.append(loss_at(6, 1), {});
  const std::vector<Json> found = lines();
  ASSERT_EQ(found.size(), 6U);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(found[i]["step"], i + 1);
}

TEST_F(MetricsFileTest, ReadsAroundLinesThatAreNoObjects) {
  files_.write_atomically(path_, "{\"step\":1}\n[1]\n\n{\"step\":NaN}\nx\n{\"step\":4}\n{\"st");
  std::vector<Json> steps;
  const int64_t unusable = read_json_lines(files_, path_, [&](Json&& line, uint64_t) {
    steps.push_back(line["step"]);
    return true;
  });
  EXPECT_EQ(unusable, 3);
  EXPECT_EQ(Json(steps), Json::parse("[1, null, 4]"));
}

TEST_F(MetricsFileTest, ReadsTheLastLinesOfAFile) {
  files_.write_atomically(path_, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  const uint64_t from = offset_of_last_lines(files_, path_, 15);
  int64_t step = 0;
  read_json_lines(
      files_, path_,
      [&](Json&& line, uint64_t) {
        step = line["step"];
        return true;
      },
      from);
  EXPECT_EQ(from, 22U);
  EXPECT_EQ(step, 3);
  EXPECT_EQ(offset_of_last_lines(files_, path_, 100), 0U);
}

TEST_F(MetricsFileTest, SessionsAreCountedAcrossProcessesAndAPartialLineIsCut) {
  const std::string path = folder_ / "sessions.jsonl";
  {
    SessionLog log(files_, path);
    log.start({{"step", 0}}, 1);
    EXPECT_EQ(log.session(), 1);
    EXPECT_TRUE(log.is_open());
    log.add("end", {{"code", 75}});
    EXPECT_FALSE(log.is_open());
  }
  files_.append(path)->write("{\"event\":\"st");
  SessionLog log(files_, path);
  log.start({{"step", 5}}, 1);
  EXPECT_EQ(log.session(), 2);
  std::string events;
  EXPECT_EQ(read_json_lines(files_, path,
                            [&](Json&& line, uint64_t) {
                              events += line["event"].get<std::string>() + " ";
                              return true;
                            }),
            0);
  EXPECT_EQ(events, "start end start ");
}

}  // namespace
}  // namespace finetune::testing
