// SPDX-License-Identifier: MIT
// `finetune report` and `status` of logs that are long, damaged, or transformers'.
#include <cmath>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kManySteps = 300'000;
constexpr int kStepsOfTrainer = 200'000;

// One value is far above the others, one far below, one NaN.
double loss_at(int step) {
  if (step == 154'321) return 99.5;
  if (step == 123'456) return -7.25;
  return 3 + std::sin(step * 0.7) * 0.3 + 1000.0 / (step + 500);
}

std::string logged_line(int step) {
  std::string loss = step == 177'777 ? "NaN" : std::to_string(loss_at(step));
  return R"({"step":)" + std::to_string(step) + R"(,"epoch":)" + std::to_string(step / 1e5) +
         R"(,"time":)" + std::to_string(1763900000 + step) +
         R"(,"session":1,"tokens_per_second":8000.5,"memory_mib":900,"loss":)" + loss +
         R"(,"grad_norm":1.25,"learning_rate":0.0001})";
}

// What the program needs to do nothing, its libraries above all.
int64_t idle_bytes() {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run");
  write_file(folder / "run/metrics.jsonl", logged_line(1) + "\n");
  return finetune({"report", folder / "run", "-o", folder / "idle.html"}).peak_bytes;
}

void expect_extremes(const Json& series, int last) {
  const auto steps = series["s"].get<std::vector<int>>();
  const auto value_at = [&](int step) {
    const auto found = std::ranges::find(steps, step);
    return found == steps.end() ? Json("not there")
                                : series["v"][static_cast<size_t>(found - steps.begin())];
  };
  EXPECT_EQ(value_at(154'321), 99.5);
  EXPECT_EQ(value_at(123'456), -7.25);
  EXPECT_EQ(value_at(177'777), nullptr);
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.back(), last);
  EXPECT_LT(steps.size(), 1400U);
  for (size_t i = 1; i < steps.size(); ++i) {
    ASSERT_GT(steps[i], steps[i - 1]);
    ASSERT_LT(steps[i] - steps[i - 1], 10'000);
  }
}

TEST(LongLog, OfManyStepsIsASmallReportInBoundedTimeAndMemory) {
  const TemporaryFolder folder;
  const std::string out = folder / "long";
  std::filesystem::create_directories(out);
  {
    std::ofstream file(out + "/metrics.jsonl");
    for (int step = 1; step <= kManySteps; ++step) file << logged_line(step) << '\n';
    file << "{\"step\":" << kManySteps + 1 << ",\"lo";  // half-written
  }
  const ProcessResult result = finetune({"report", out, "-o", folder / "long.html"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_LT(read_file(folder / "long.html").size(), 1'000'000U);
  EXPECT_LT(result.peak_bytes, idle_bytes() + (int64_t{48} << 20));
  EXPECT_LT(result.seconds, 100);  // some seconds of computing, on a machine that is shared
  const ProcessResult json = finetune({"report", out, "--format", "json"});
  const Json run = Json::parse(json.out)["runs"][0];
  expect_extremes(run["series"]["loss"], kManySteps);
  EXPECT_THAT(run["notes"][0].get<std::string>(),
              HasSubstr("1 line of metrics.jsonl is damaged and left out"));
  // The newest steps only are looked at.
  const ProcessResult status = finetune({"status", out, "--json"});
  EXPECT_EQ(status.code, 75);
  EXPECT_EQ(Json::parse(status.out)["step"], kManySteps);
  EXPECT_LT(status.peak_bytes, idle_bytes() + (int64_t{16} << 20));
}

// transformers has its log in one JSON object, and writes NaN as it is.
TEST(LongLog, OfTransformersTrainerIsReadEntryByEntry) {
  const TemporaryFolder folder;
  const std::string checkpoint = folder / ("theirs/checkpoint-" + std::to_string(kStepsOfTrainer));
  std::filesystem::create_directories(checkpoint);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(kMaskedLm + "/" + name, checkpoint + "/" + name);
  }
  {
    std::ofstream file(checkpoint + "/trainer_state.json");
    file << R"({"epoch": 10.0, "global_step": 200000, "log_history": [)";
    for (int step = 1; step <= kStepsOfTrainer; ++step) {
      file << (step > 1 ? ",\n" : "\n") << logged_line(step);
    }
    file << R"(], "max_steps": 200000})";
  }
  const uint64_t size = std::filesystem::file_size(checkpoint + "/trainer_state.json");
  const ProcessResult result = finetune({"report", folder / "theirs", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json run = Json::parse(result.out)["runs"][0];
  expect_extremes(run["series"]["loss"], kStepsOfTrainer);
  EXPECT_EQ(run["status"]["state"], "finished");
  // The text of the file, once as it is and once without NaN; never all entries.
  EXPECT_LT(result.peak_bytes, idle_bytes() + static_cast<int64_t>(2 * size) + (int64_t{48} << 20));
}

TEST(DamagedLog, IsReportedWithWhatCanBeRead) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "8"}});
  ASSERT_EQ(run.train().code, 0);
  const std::vector<std::string> names = {"metrics.jsonl", "sessions.jsonl", "trainer_state.json",
                                          "finetune_state.json", "all_results.json"};
  std::vector<std::string> whole;
  for (const std::string& name : names) whole.push_back(read_file(run.out(name)));
  const TemporaryFolder pages;
  for (size_t i = 0; i < names.size(); ++i) {
    for (const double share : {0.0, 0.3, 0.7, 0.99}) {
      const auto size = static_cast<size_t>(share * static_cast<double>(whole[i].size()));
      write_file(run.out(names[i]), whole[i].substr(0, size));
      const ProcessResult report = finetune({"report", run.out(), "-o", pages / "page.html"});
      EXPECT_EQ(report.code, 0) << names[i] << " " << share << ": " << report.err;
      const int code = finetune({"status", run.out()}).code;
      EXPECT_TRUE(code == 0 || code == 75) << names[i] << " " << share << ": " << code;
    }
    write_file(run.out(names[i]), whole[i]);
  }
}

}  // namespace
}  // namespace finetune::testing
