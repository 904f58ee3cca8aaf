// SPDX-License-Identifier: MIT
// Commands and files for watching runs: metrics.jsonl, `finetune status`, `finetune report`.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <sstream>
#include <thread>

#include "finetune/base/printable.h"
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Returns metrics.jsonl without values that depend on time, like log_without_times().
Json metrics_without_times(const TinyRun& run) {
  Json entries = Json::array();
  for (const Json& line : lines_of(run.out("metrics.jsonl"))) {
    nlohmann::json kept = nlohmann::json::object();
    for (const auto& [key, value] : line.items()) {
      const bool is_measured = key == "time" || key == "session" || key == "memory_mib" ||
                               key.find("runtime") != std::string::npos ||
                               key.find("per_second") != std::string::npos;
      if (!is_measured) kept[key] = value;
    }
    entries.push_back(Json(kept));
  }
  return entries;
}

Json status_of(const std::string& folder, int code) {
  const ProcessResult result = finetune({"status", folder, "--json"});
  EXPECT_EQ(result.code, code) << result.out << result.err;
  return Json::parse(result.out);
}

// Kills the run after the step was logged.
void kill_at(const TinyRun& run, int step) {
  Process process(run.command());
  ASSERT_TRUE(process.wait_for_output("train " + std::to_string(step) + "/40"));
  process.send(SIGKILL);
  EXPECT_EQ(process.finish().code, 128 + SIGKILL);
}

TEST(MetricsLog, EqualsThatOfAnUninterruptedRunAfterKills) {
  const TinyRun run;
  for (const int step : {3, 10, 20, 27, 38}) kill_at(run, step);
  // Appends an incomplete line, as if the run was killed while writing it.
  std::ofstream(run.out("metrics.jsonl"), std::ios::app) << "{\"step\":39,\"lo";
  expect_resumes_equal(run);
  EXPECT_EQ(metrics_without_times(run), unbroken().log);
  const std::vector<Json> lines = lines_of(run.out("metrics.jsonl"));
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_GE(lines[i]["step"], lines[i - 1]["step"]);
    EXPECT_GE(lines[i]["time"], lines[i - 1]["time"]);
    EXPECT_GE(lines[i]["session"], lines[i - 1]["session"]);
  }
  EXPECT_EQ(lines.back()["session"], 6);
  const std::string before = read_file(run.out("metrics.jsonl"));
  EXPECT_EQ(run.train().code, 0);  // already finished
  EXPECT_EQ(read_file(run.out("metrics.jsonl")), before);
}

TEST(MetricsLog, DoesNotDoubleBackAfterARollback) {
  const TinyRun run(TinyRun::Keys{{"divergence_policy", "rollback"}});
  const ProcessResult result = run.train(
      {}, {.environment = {{"FINETUNE_TEST_POISON", "weight@16"}}, .folder = "", .watch = ""});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(metrics_without_times(run), log_without_times(run.out()));
  std::string events;
  for (const Json& event : lines_of(run.out("sessions.jsonl"))) {
    events += event["event"].get<std::string>() + " ";
  }
  EXPECT_THAT(events, ContainsRegex("^start (rollback )+end $"));
}

TEST(Status, TellsEachStateByTextJsonAndExitCode) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "4000"}, {"eval_steps", "5"}});
  EXPECT_EQ(finetune({"status", run.out()}).code, 2);
  {
    Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
    ASSERT_TRUE(process.wait_for_output("train 8/4000"));
    ASSERT_TRUE(process.wait_for_file("checkpoint-14"));  // the one before it is complete
    const Json status = status_of(run.out(), 6);
    EXPECT_EQ(status["state"], "running");
    EXPECT_EQ(status["process"]["pid"], process.id());
    EXPECT_EQ(status["session"], 1);
    EXPECT_EQ(status["max_steps"], 4000);
    EXPECT_GE(status["step"], 8);
    EXPECT_GT(status["seconds_left"], 0);
    EXPECT_EQ(status["evaluation"]["step"].get<int>() % 5, 0);
    EXPECT_EQ(status["next_save"].get<int>() % 7, 0);
    EXPECT_THAT(finetune({"status", run.out()}).out,
                ContainsRegex("running, process [0-9]+ on '.*' since .*, session 1\n.*step +[0-9]+ "
                              "of 4000 \\([0-9]+%\\), epoch"));
    process.send(SIGKILL);
    (void)process.finish();
  }
  const ProcessResult killed = finetune({"status", run.out()});
  EXPECT_EQ(killed.code, 75) << killed.out;
  EXPECT_THAT(killed.out, HasSubstr("not running, the last session was killed"));
  EXPECT_THAT(killed.out, HasSubstr("resume from step"));

  const int reached = status_of(run.out(), 75)["resume_step"];
  run.train_until(reached + 3);
  const Json stopped = status_of(run.out(), 75);
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_EQ(stopped["last_end"]["reason"], "stopped by --stop_at_step");
  EXPECT_EQ(stopped["resume_step"], reached + 3);
  EXPECT_EQ(stopped["step"], reached + 3);

  const std::string total = std::to_string(reached + 5);
  EXPECT_EQ(run.train({"--max_steps", total}).code, 0);
  const Json finished = status_of(run.out(), 0);
  EXPECT_EQ(finished["state"], "finished");
  EXPECT_EQ(finished["model"], "valid");
  EXPECT_EQ(finished["step"], reached + 5);
  // Truncates everything that status reads to half.
  for (const char* name : {"metrics.jsonl", "sessions.jsonl", "trainer_state.json"}) {
    const std::string text = read_file(run.out(name));
    write_file(run.out(name), text.substr(0, text.size() / 2));
  }
  EXPECT_EQ(status_of(run.out(), 0)["state"], "finished");
}

TEST(Status, OfAStoppedRunHasTheStepThatWasSaved) {
  const TinyRun run(TinyRun::Keys{{"logging_steps", "10"}, {"eval_strategy", "\"no\""}});
  run.train_until(13);
  const Json status = status_of(run.out(), 75);
  EXPECT_EQ(status["step"], 13);
  EXPECT_EQ(status["logged_step"], 10);
}

TEST(Status, OfAFastRunTakesAllValuesFromOneRecord) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "4000"}, {"eval_strategy", "\"no\""}});
  Process process(run.command());
  ASSERT_TRUE(process.wait_for_output("train 20/4000"));
  process.send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::string record = run.out(".finetune.progress.json");
  const double now = static_cast<double>(std::time(nullptr)) + 1;
  Json progress = {{"time", now}, {"unit", "step"}, {"total", 4000}};
  const Json logged = lines_of(run.out("metrics.jsonl")).back();
  const int step = logged["step"];
  // A record of a step that is older than the newest line of the log, as a fast run has it.
  progress.update({{"phase", "train"}, {"done", 3}, {"loss", 99.5}, {"next_save", 7}});
  write_file(record, progress.dump());
  const Json late = status_of(run.out(), 6);
  EXPECT_EQ(late["step"], step);
  EXPECT_EQ(late["loss"], logged["loss"]);
  EXPECT_EQ(late["grad_norm"], logged["grad_norm"]);
  EXPECT_GT(late["next_save"], step);
  // And of a newer step: nothing of the log's line is mixed in.
  progress.update({{"done", step + 5}, {"next_save", step + 6}});
  write_file(record, progress.dump());
  const Json early = status_of(run.out(), 6);
  EXPECT_EQ(early["step"], step + 5);
  EXPECT_EQ(early["loss"], 99.5);
  EXPECT_FALSE(early.contains("grad_norm"));
  EXPECT_EQ(early["next_save"], step + 6);
  process.send(SIGKILL);
  (void)process.finish();
}

TEST(Status, NamesTheNextSaveBeforeTheFirstSaveAndTheFirstRecord) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "4000"}, {"save_steps", "0.5"}});
  Process process(run.command());
  ASSERT_TRUE(process.wait_for_output("train 8/4000"));
  process.send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::filesystem::remove(run.out(".finetune.progress.json"));
  const Json status = status_of(run.out(), 6);
  process.send(SIGKILL);
  (void)process.finish();
  EXPECT_TRUE(status["checkpoints"].empty());
  EXPECT_EQ(status.value("next_save", 0), 2000);
  EXPECT_GT(status.value("seconds_left", 0.0), 0);
}

TEST(Status, NamesTheLowestEvaluationLossWithoutAMetricForTheBestModel) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "12"}, {"eval_steps", "3"}});
  ASSERT_EQ(run.train().code, 0);
  double lowest = 1e9;
  for (const Json& line : lines_of(run.out("metrics.jsonl"))) {
    if (line.contains("eval_loss")) lowest = std::min(lowest, line["eval_loss"].get<double>());
  }
  const Json status = status_of(run.out(), 0);
  EXPECT_EQ(status["best_metric"], lowest);
  EXPECT_EQ(status["best_metric_name"], "eval_loss");
  EXPECT_THAT(finetune({"status", run.out()}).out,
              ContainsRegex("; best eval_loss [0-9.]+ at step (3|6|9|12)\n"));
}

TEST(Status, OfAFailedRunAdvisesWhatTheErrorDoes) {
  const TemporaryFolder folder;
  const std::string out = folder / "failed";
  std::filesystem::create_directories(out);
  write_file(
      out + "/sessions.jsonl",
      "{\"event\":\"start\",\"time\":1763900000,\"session\":1,\"step\":0}\n"
      "{\"event\":\"error\",\"time\":1763900100,\"message\":\"step 5: the loss is NaN; lower "
      "learning_rate\"}\n");
  const ProcessResult status = finetune({"status", out});
  EXPECT_EQ(status.code, 75);
  EXPECT_THAT(status.out,
              ContainsRegex("  last error   .*: step 5: the loss is NaN\n"
                            "  next         lower learning_rate; nothing was saved yet"));
}

// Whether a text is lines of printable UTF-8 that are all indented but the first.
void expect_printable_lines(const std::string& text) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    EXPECT_EQ(printable_line(line), line);
    EXPECT_TRUE(number == 0 || line.starts_with("  ")) << line;
  }
  EXPECT_GT(number, 3);
}

TEST(Status, EscapesWhatTheRunSupplies) {
  const TemporaryFolder folder;
  const std::string out = folder / "a\x1b[31m \xff\nb";
  std::filesystem::create_directories(out);
  const Json start = {{"event", "start"},
                      {"time", 1763900000},
                      {"session", 1},
                      {"step", 0},
                      {"host", "\x1b]0;host\a\n"},
                      {"config", {{"mirror_dir", "/mirror\x1b[2J\nfolder"}}}};
  const Json end = {{"event", "end"},
                    {"time", 1763900100},
                    {"code", 75},
                    {"step", 3},
                    {"reason", "stopped\x1b[31m\nby a name"}};
  const Json error = {
      {"event", "error"}, {"time", 1763900050}, {"message", "what\x1b[31m:\n  line"}};
  const Json line = {{"step", 3}, {"loss", 1}, {"eval_loss", 2}, {"eval_\x1b[31m\n", 3}};
  write_file(out + "/sessions.jsonl",
             start.dump() + "\n" + error.dump() + "\n" + end.dump() + "\n");
  write_file(out + "/metrics.jsonl", line.dump() + "\n");
  const ProcessResult status = finetune({"status", out});
  EXPECT_EQ(status.code, 75) << status.err;
  expect_printable_lines(status.out);
  EXPECT_THAT(status.out, HasSubstr("/a\\u001b[31m \\xff\\nb: stopped with everything saved"));
  EXPECT_THAT(status.out, HasSubstr("what\\u001b[31m: line\n"));
  const ProcessResult json = finetune({"status", out, "--json"});
  EXPECT_EQ(json.code, 75) << json.err;
  EXPECT_EQ(Json::parse(json.out)["last_end"]["reason"], "stopped\x1b[31m\nby a name");
  for (const std::string format : {"md", "json"}) {
    const ProcessResult report = finetune({"report", out, "--format", format});
    EXPECT_EQ(report.code, 0) << report.err;
    EXPECT_EQ(printable(report.out), report.out) << format;
  }
  EXPECT_EQ(finetune({"report", out, "-o", folder / "page.html"}).code, 0);
}

TEST(Status, OfALogAloneHasItsFiguresAndSaysThatTheEndIsUnknown) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run");
  write_file(folder / "run/metrics.jsonl",
             "{\"step\":1,\"loss\":2,\"tokens_per_second\":1234567.25}\n");
  const ProcessResult status = finetune({"status", folder / "run"});
  EXPECT_THAT(status.out, HasSubstr(" 1234567 tokens/s\n"));
  EXPECT_THAT(status.out, HasSubstr("run: not running, without a record of its end\n"));
}

TEST(Status, SaysThatTheLossIsNan) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run");
  write_file(folder / "run/metrics.jsonl",
             "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":NaN,\"learning_rate\":0.1}\n"
             "{\"step\":2,\"eval_loss\":NaN,\"eval_f1\":0.5}\n");
  EXPECT_THAT(finetune({"status", folder / "run"}).out,
              HasSubstr("  loss         NaN, learning rate 0.1\n"
                        "  evaluation   eval_loss NaN, eval_f1 0.5 at step 2"));
  EXPECT_TRUE(status_of(folder / "run", 75)["loss"].is_null());
}

TEST(Status, LeavesOutNumbersThatNoRunHas) {
  const TemporaryFolder folder;
  const std::string out = folder / "run";
  std::filesystem::create_directories(out);
  write_file(out + "/metrics.jsonl",
             "{\"step\":5,\"loss\":2,\"grad_norm\":1e-320}\n{\"step\":1e300,\"session\":-1e300,"
             "\"loss\":2}\n"
             "{\"step\":-3,\"time\":1e308,\"memory_mib\":1e300,\"loss\":2}\n");
  write_file(out + "/trainer_state.json", "{\"global_step\":1e99,\"max_steps\":1e300}");
  write_file(out + "/sessions.jsonl",
             "{\"event\":\"start\",\"time\":1e300,\"session\":1e99,\"step\":-1e99}\n"
             "{\"event\":\"start\",\"logged_step\":1e300,\"step\":\"x\",\"time\":\"x\"}\n");
  EXPECT_THAT(finetune({"status", out}).out, Not(HasSubstr("-9223372036854775808")));
  const ProcessResult report = finetune({"report", out, "--format", "json"});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, Not(HasSubstr("9223372036854775808")));
  EXPECT_EQ(Json::parse(report.out)["runs"][0]["series"]["loss"]["s"], Json::parse("[5]"));
}

TEST(Status, HasTheShareOfTheMeasuredCeiling) {
  // Few lines: nobody reads the process's output any more, and a full pipe would stop it.
  const TinyRun run(
      TinyRun::Keys{{"max_steps", "40000"}, {"logging_steps", "200"}, {"eval_strategy", "\"no\""}});
  Process process(run.command({"--progress", "json"}));
  ASSERT_TRUE(process.wait_for_output("\"ceiling_share\":"));
  Json status;
  // The record is written every few seconds.
  const auto is_complete = [&] {  // before the first logged step there are no tokens per second
    return status.contains("ceiling_share") && status.contains("tokens_per_second");
  };
  for (int attempt = 0; attempt < 600 && !is_complete(); ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = status_of(run.out(), 6);
  }
  ASSERT_TRUE(status.contains("ceiling_share")) << status;
  EXPECT_GT(status["ceiling_share"], 0);
  EXPECT_LT(status["ceiling_share"], 1.5);
  // The record of another moment may lack one of them, before the first logged step.
  const auto expected = ContainsRegex("tokens/s, [0-9]+% of the measured ceiling, peak memory");
  std::string text;
  for (int attempt = 0; attempt < 100; ++attempt) {
    text = finetune({"status", run.out()}).out;
    if (::testing::Value(text, expected)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_THAT(text, expected);
}

TEST(Status, FindsNoValidCheckpointAndTheLastError) {
  const TinyRun run;
  run.train_until(9);
  for (const auto& entry : std::filesystem::directory_iterator(run.out())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("checkpoint-")) write_file(entry.path() / "model.safetensors", "");
  }
  const ProcessResult damaged = finetune({"status", run.out()});
  EXPECT_EQ(damaged.code, 3) << damaged.out;
  EXPECT_THAT(damaged.out, HasSubstr("no valid checkpoint"));
  EXPECT_EQ(run.train().code, 3);  // renames them to .bad
  EXPECT_EQ(status_of(run.out(), 3)["quarantined_checkpoints"], 2);

  const TinyRun poisoned;
  EXPECT_EQ(
      poisoned
          .train({},
                 {.environment = {{"FINETUNE_TEST_POISON", "loss@5"}}, .folder = "", .watch = ""})
          .code,
      1);
  const Json failed = status_of(poisoned.out(), 75);
  EXPECT_EQ(failed["state"], "failed");
  EXPECT_THAT(failed["last_error"]["message"].get<std::string>(), HasSubstr("step 5"));
}

TEST(Status, RefusesWhatIsNoRun) {
  const TemporaryFolder folder;
  const ProcessResult empty = finetune({"status", folder / "."});
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.err, HasSubstr("there is no run in"));
  EXPECT_EQ(finetune({"status", folder / "none"}).code, 2);
  EXPECT_EQ(finetune({"status", folder.write("file", "")}).code, 2);
  EXPECT_EQ(finetune({"status"}).code, 2);
  EXPECT_EQ(finetune({"status", kMaskedLm}).code, 2);  // a model
}

// Returns a folder as transformers' Trainer leaves it: no lock, no manifest, the log only in
// trainer_state.json.
std::string folder_of_transformers(const TemporaryFolder& folder, int steps) {
  const std::string out = folder / "theirs";
  const std::string checkpoint = out + "/checkpoint-" + std::to_string(steps);
  std::filesystem::create_directories(checkpoint);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(kMaskedLm + "/" + name, checkpoint + "/" + name);
  }
  Json state = {
      {"epoch", 1.0}, {"global_step", steps}, {"max_steps", 20}, {"log_history", Json::array()}};
  for (int step = 5; step <= steps; step += 5) {
    state["log_history"].push_back({{"epoch", step / 20.0},
                                    {"grad_norm", 1.5},
                                    {"learning_rate", 1e-4},
                                    {"loss", 10.0 / step},
                                    {"step", step}});
  }
  write_file(checkpoint + "/trainer_state.json", state.dump(2));
  return out;
}

TEST(Report, ReadsFoldersOfTransformersTrainer) {
  const TemporaryFolder folder;
  const std::string out = folder_of_transformers(folder, 10);
  const Json status = status_of(out, 75);
  EXPECT_EQ(status["is_foreign"], true);
  EXPECT_EQ(status["step"], 10);
  EXPECT_EQ(status["loss"], 1.0);
  const ProcessResult report = finetune({"report", out, "--format", "json"});
  ASSERT_EQ(report.code, 0) << report.err;
  const Json series = Json::parse(report.out)["runs"][0]["series"];
  EXPECT_EQ(series["loss"]["v"], Json::parse("[2.0, 1.0]"));
}

TEST(Report, NeverReplacesAFileOfTheRun) {
  const TemporaryFolder folder;
  const std::string out = folder_of_transformers(folder, 10);
  write_file(out + "/model.safetensors", "weights");
  const ProcessResult refused = finetune({"report", out, "-o", out + "/model.safetensors"});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("is a file of the run in"));
  EXPECT_EQ(read_file(out + "/model.safetensors"), "weights");
  for (int i = 0; i < 2; ++i) {  // its own file is replaced
    EXPECT_EQ(finetune({"report", out, "-o", out + "/report.html"}).code, 0);
  }
}

// Every value of the log is in a curve at its step, and nothing else.
void expect_curves_of_log(const Json& series, const TinyRun& run) {
  std::map<std::string, std::pair<Json, Json>> expected;  // steps and values
  for (const Json& entry : log_without_times(run.out())) {
    for (const auto& [key, value] : entry.items()) {
      if (key == "step" || key == "epoch" || key == "total_flos" || key.starts_with("train_")) {
        continue;
      }
      expected[key].first.push_back(entry["step"]);
      expected[key].second.push_back(value);
    }
  }
  ASSERT_GE(expected.size(), 4U);  // loss, eval_loss, learning_rate, grad_norm
  for (const auto& [key, curve] : expected) {
    EXPECT_EQ(series[key]["s"], curve.first) << key;
    ASSERT_EQ(series[key]["v"].size(), curve.second.size()) << key;
    for (size_t i = 0; i < curve.second.size(); ++i) {
      const double value = curve.second[i].get<double>();
      // Six digits are kept.
      EXPECT_NEAR(series[key]["v"][i].get<double>(), value, 1e-5 * std::abs(value)) << key;
    }
  }
}

// Each session ends at the last step that it logged, begins where an earlier one was saved, and
// lasts as long as its log.
void expect_sessions_of_log(const Json& sessions, const TinyRun& run) {
  std::map<int64_t, std::pair<double, double>> logged;  // times of each session's lines
  for (const Json& line : lines_of(run.out("metrics.jsonl"))) {
    const double time = line["time"];
    auto& [first, last] =
        logged.try_emplace(line["session"].get<int64_t>(), time, time).first->second;
    last = time;
  }
  for (size_t i = 0; i < sessions.size(); ++i) {
    const Json& session = sessions[i];
    EXPECT_EQ(session["session"], i + 1);
    EXPECT_LE(session["first_step"], session["last_step"]);
    EXPECT_LE(session["start"], session["end"]);
    if (i > 0) {
      EXPECT_LE(sessions[i - 1]["end"], session["start"]);
      EXPECT_LE(session["first_step"], sessions[i - 1]["last_step"]);
    }
    const auto times = logged.find(static_cast<int64_t>(i + 1));
    if (times == logged.end()) continue;  // killed, and its steps were done again
    EXPECT_LE(session["start"].get<double>(), times->second.first);
    EXPECT_GE(session["end"].get<double>(), times->second.second);
  }
  EXPECT_EQ(sessions.back()["last_step"], 40);
}

TEST(Report, TellsSessionsChangesAndMirrorAsTheLogDid) {
  TinyRun run;
  run.set({{"mirror_dir", run.folder() / "mirror"},
           {"async_save", "false"},
           {"hardware", "{units_per_hour: 36000, price_per_unit: 2, currency: EUR}"}});
  kill_at(run, 10);
  run.train_until(14);
  run.set({{"learning_rate", "5e-4"}});
  kill_at(run, 20);
  kill_at(run, 23);
  run.train_until(30);
  ASSERT_EQ(run.train().code, 0);
  const ProcessResult json = finetune({"report", run.out(), "--format", "json", "--verify"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json report = Json::parse(json.out)["runs"][0];
  std::string endings;
  for (const Json& session : report["sessions"]) {
    endings += session["ending"].get<std::string>() + " " + session["first_step"].dump() + " ";
  }
  EXPECT_EQ(endings, "killed 0 stopped 7 killed 14 killed 14 stopped 21 finished 30 ");
  // What was logged and what was kept of it.
  EXPECT_GE(report["sessions"][0]["last_step"], 10);
  EXPECT_EQ(report["sessions"][0]["resumed_from"], 7);
  EXPECT_FALSE(report["sessions"][1].contains("resumed_from"));
  EXPECT_GE(report["sessions"][2]["last_step"], 20);
  EXPECT_EQ(report["sessions"][2]["resumed_from"], 14);
  ASSERT_EQ(report["changes"].size(), 1U);
  EXPECT_EQ(report["changes"][0]["key"], "learning_rate");
  EXPECT_EQ(report["changes"][0]["step"], 14);
  EXPECT_EQ(report["status"]["mirror"]["has_model"], true);
  EXPECT_THAT(report["cost_text"].get<std::string>(),
              ContainsRegex("^[0-9.]+ units \\([0-9.]+ EUR\\) spent$"));
  EXPECT_THAT(finetune({"status", run.out()}).out,
              ContainsRegex("\n  trained      .* in 6 sessions\n  cost         [0-9.]+ units"));
  EXPECT_EQ(read_file(run.folder() / "mirror/metrics.jsonl"), read_file(run.out("metrics.jsonl")));
  expect_curves_of_log(report["series"], run);
  expect_sessions_of_log(report["sessions"], run);
  const Json log = log_without_times(run.out());
  const ProcessResult csv = finetune({"report", run.out(), "--format", "csv"});
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'),
            static_cast<std::ptrdiff_t>(log.size() + 1));
  EXPECT_THAT(finetune({"report", run.out(), "--format", "md"}).out,
              HasSubstr("| 3 | 14 | learning_rate | 0.001 | 0.0005 |"));
}

TEST(Report, IsSmallAndKeepsExtremesOfAHundredThousandSteps) {
  const TemporaryFolder folder;
  const std::string out = folder / "long";
  std::filesystem::create_directories(out);
  {
    std::ofstream file(out + "/metrics.jsonl");
    for (int step = 1; step <= 100'000; ++step) {
      const double loss =
          step == 54321 ? 99.5 : 3 + std::sin(step * 0.7) * 0.3 + 1000.0 / (step + 500);
      file << R"({"step":)" << step << R"(,"epoch":)" << step / 1000.0 << R"(,"time":)"
           << 1763900000 + step << R"(,"session":1,"tokens_per_second":8000.5,"memory_mib":900,)"
           << R"("loss":)" << loss << R"(,"grad_norm":1.25,"learning_rate":)"
           << 1e-4 * (1 - step / 1e5) << "}\n";
    }
    file << "{\"step\":100001,\"lo";
  }
  const ProcessResult result = finetune({"report", out, "-o", folder / "long.html"});
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string page = read_file(folder / "long.html");
  EXPECT_LT(page.size(), 1'000'000U);
  EXPECT_THAT(page, HasSubstr("99.5"));
  EXPECT_THAT(page, HasSubstr("1 line of metrics.jsonl is damaged"));
  EXPECT_THAT(page, Not(ContainsRegex("(src|href)=|@import|url\\(")));  // loads nothing
}

// A folder with the log of two sessions of a run that lasts 3 seconds.
std::string short_run(const TemporaryFolder& folder) {
  const std::string out = folder / "short";
  std::filesystem::create_directories(out);
  write_file(out + "/metrics.jsonl",
             "{\"step\":1,\"time\":1763900000.25,\"session\":1,\"memory_mib\":900,\"loss\":2}\n"
             "{\"step\":2,\"time\":1763900000.5,\"session\":1,\"memory_mib\":910,\"loss\":2}\n"
             "{\"step\":3,\"time\":1763900003.25,\"session\":2,\"memory_mib\":500,\"loss\":2}\n");
  write_file(
      out + "/sessions.jsonl",
      "{\"event\":\"start\",\"time\":1763900000,\"session\":1,\"step\":0,\"data\":{\"train\":{"
      "\"samples\":1000,\"looked_at\":256,\"mean_length\":12.5,\"median_length\":12,"
      "\"longest\":31,\"labels\":{\"0\":100,\"1\":156}},\"validation\":{\"samples\":64}}}\n"
      "{\"event\":\"end\",\"time\":1763900004,\"code\":0,\"step\":3}\n");
  return out;
}

Json report_of(const std::string& out) {
  const ProcessResult result = finetune({"report", out, "--format", "json"});
  EXPECT_EQ(result.code, 0) << result.err;
  return Json::parse(result.out)["runs"][0];
}

TEST(Report, HasThePeakMemoryOfAllSessions) {
  const TemporaryFolder folder;
  const std::string out = short_run(folder);
  EXPECT_EQ(report_of(out)["peak_memory_mib"], 910);
  EXPECT_THAT(finetune({"status", out}).out, HasSubstr("peak memory 500 MiB of session 2"));
}

TEST(Report, HasTimesOfAShortRunToTheMillisecond) {
  const TemporaryFolder folder;
  EXPECT_EQ(report_of(short_run(folder))["series"]["loss"]["t"], Json::parse("[0.0, 0.25, 3.0]"));
}

TEST(Report, HasOneThroughputAStepAndBeginsAgainWithEachSession) {
  const TemporaryFolder folder;
  const std::string out = folder / "run";
  std::filesystem::create_directories(out);
  std::string log;
  const auto add = [&](int step, int session, int speed, const char* value) {
    log += "{\"step\":" + std::to_string(step) + ",\"time\":" + std::to_string(1763900000 + step) +
           ",\"session\":" + std::to_string(session) +
           ",\"tokens_per_second\":" + std::to_string(speed) +
           ",\"memory_mib\":" + std::to_string(100 * session) + ",\"" + value + "\":2}\n";
  };
  add(10, 1, 800, "loss");
  add(20, 1, 810, "loss");
  add(20, 1, 500, "eval_loss");
  add(20, 2, 90, "eval_loss");  // the first line of a session, at the step that it resumed from
  add(30, 2, 700, "loss");
  add(40, 2, 720, "loss");
  write_file(out + "/metrics.jsonl", log);
  const Json series = report_of(out)["series"];
  EXPECT_EQ(series["tokens_per_second"]["s"], Json::parse("[10,20,30,40]"));
  EXPECT_EQ(series["tokens_per_second"]["v"], Json::parse("[800.0,810.0,700.0,720.0]"));
  EXPECT_EQ(series["tokens_per_second"]["b"], Json::parse("[2]"));
  EXPECT_EQ(series["memory_mib"]["b"], Json::parse("[2]"));
  EXPECT_FALSE(series["loss"].contains("b"));
  EXPECT_EQ(series["eval_loss"]["s"], Json::parse("[20,20]"));  // what was measured stays
}

TEST(Report, HasTheDataInMarkdown) {
  const TemporaryFolder folder;
  const std::string text = finetune({"report", short_run(folder), "--format", "md"}).out;
  EXPECT_THAT(text, HasSubstr("### Data\n"));
  EXPECT_THAT(text, HasSubstr("| train | 1000 | ≈ 12500 | 12.5 | 12 | 31 |\n"));
  EXPECT_THAT(text, HasSubstr("| validation | 64 | – | – | – | – |\n"));
  EXPECT_THAT(text, HasSubstr("| 1 | 156 |\n"));
}

TEST(Report, TakesTheFormatFromTheEndingOfTheFile) {
  const TemporaryFolder folder;
  const std::string out = short_run(folder);
  const std::pair<const char*, const char*> beginnings[] = {
      {"x.csv", "run,step,"}, {"x.MD", "# finetune report\n"}, {"x.json", "{\n"}, {"x.htm", "<!"}};
  for (const auto& [name, beginning] : beginnings) {
    const ProcessResult result = finetune({"report", out, "-o", folder / name});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(read_file(folder / name).starts_with(beginning)) << name;
  }
  const ProcessResult other = finetune({"report", out, "-o", folder / "y.csv", "--format", "md"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("is named like csv and --format is md"));
  const ProcessResult unknown = finetune({"report", out, "-o", folder / "y.txt"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("does not end in .html, .md, .json or .csv"));
  EXPECT_EQ(finetune({"report", out, "-o", folder / "y.txt", "--format", "md"}).code, 0);
}

TEST(Report, ChecksTheFileBeforeItReadsTheRun) {
  const TemporaryFolder folder;
  // Reading the run would fail too; the file is refused first.
  const std::string none = folder / "none";
  const ProcessResult missing = finetune({"report", none, "-o", folder / "no/folder/x.html"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("there is no folder '" + (folder / "no/folder") + "'"));
  std::filesystem::create_directories(folder / "x.html");
  EXPECT_THAT(finetune({"report", none, "-o", folder / "x.html"}).err, HasSubstr("is a folder"));
}

TEST(Report, PutsNoDataIntoMarkup) {
  const TemporaryFolder folder;
  const std::string out = folder / "<script>alert(1)<";
  std::filesystem::create_directories(out);
  write_file(out + "/metrics.jsonl", "{\"step\":1,\"loss\":1,\"</script><b>\":2}\n");
  const ProcessResult result = finetune({"report", out, "-o", folder / "page.html"});
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string page = read_file(folder / "page.html");
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
}

TEST(Report, ExplainsWhatItIsGivenWrongly) {
  const TemporaryFolder folder;
  EXPECT_EQ(finetune({"report"}).code, 2);
  EXPECT_EQ(finetune({"report", folder / "."}).code, 2);
  EXPECT_THAT(finetune({"report", folder / ".", "--format", "pdf"}).err,
              HasSubstr("html, md, json or csv"));
  EXPECT_THAT(finetune({"report", "--fromat", folder / "."}).err, HasSubstr("--fromat"));
}

// A stand-in for a tracker's interpreter that stores its last job.
std::string recording_interpreter(const TinyRun& run, const std::string& end) {
  const std::string path = run.folder().write(
      "python", "#!/bin/sh\ncat > '" + (run.folder() / "job.json") + "'\n" + end + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

ProcessOptions with_python(const std::string& path) {
  return {.environment = {{"FINETUNE_PYTHON", path}}, .folder = "", .watch = ""};
}

TEST(Trackers, AreRefusedBeforeTheRunWhereTheirPackageIsMissing) {
  const TinyRun run;
  const ProcessOptions bare = with_python("/bin/false");
  const ProcessResult result = run.train({"--report_to", "tensorboard", "mlflow"}, bare);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("command line: report_to: the Python package mlflow is not installed "
                        "(/bin/false): install it ('python3 -m pip install mlflow')"));
  EXPECT_TRUE(std::filesystem::is_empty(run.out()));
}

TEST(Trackers, GetTheRunAtTheEndOfEachSession) {
  const TinyRun run(TinyRun::Keys{{"report_to", "wandb"}, {"max_steps", "6"}});
  const ProcessOptions options = with_python(recording_interpreter(run, "echo wrote /there"));
  const ProcessResult stopped = run.train({"--stop_at_step", "3"}, options);
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("wandb: the run is in /there; `wandb sync` uploads it"));
  const Json first = Json::parse(read_file(run.folder() / "job.json"));
  EXPECT_EQ(first["finished"], false);
  EXPECT_EQ(first["metrics"], run.out("metrics.jsonl"));
  EXPECT_EQ(first["name"], "out");
  EXPECT_EQ(first["config"]["learning_rate"], 1e-3);
  ASSERT_EQ(run.train({}, options).code, 0);
  const Json second = Json::parse(read_file(run.folder() / "job.json"));
  EXPECT_EQ(second["finished"], true);
  EXPECT_EQ(second["run_id"], first["run_id"]);
  EXPECT_EQ(second["run_id"], Json::parse(read_file(run.out("finetune_state.json")))["run_id"]);
}

TEST(Trackers, ThatFailCostTheRunNothing) {
  const TinyRun run(TinyRun::Keys{{"report_to", "wandb"}, {"max_steps", "2"}});
  // The search for the package passes a name, the run a job.
  const std::string python = recording_interpreter(
      run, "grep -q tracker '" + (run.folder() / "job.json") + "' || exit 0\necho no disk; exit 1");
  const ProcessResult result = run.train({}, with_python(python));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: wandb failed: no disk; metrics.jsonl has every"));
}

}  // namespace
}  // namespace finetune::testing
