// SPDX-License-Identifier: MIT
// Progress on a terminal: each test runs the program on its own pseudo-terminal.
#include <stdlib.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <sstream>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs a command with standard error on a terminal of `columns` columns; returns its output.
std::string on_terminal(Arguments words, int columns,
                        const std::map<std::string, std::string>& environment = {}) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(terminal, 0);
  EXPECT_EQ(::grantpt(terminal), 0);
  EXPECT_EQ(::unlockpt(terminal), 0);
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  EXPECT_EQ(::ioctl(terminal, TIOCSWINSZ, &size), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int side = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
    for (const int stream : {0, 1, 2}) ::dup2(side, stream);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::setenv("TERM", "xterm", 1);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> list;
    for (std::string& word : words) list.push_back(word.data());
    list.push_back(nullptr);
    ::execvp(list[0], list.data());
    ::_exit(127);
  }
  std::string text;
  std::array<char, 4096> block = {};
  while (true) {  // fails after the child has closed its side
    pollfd ready = {.fd = terminal, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 120'000) <= 0) break;
    const ssize_t count = ::read(terminal, block.data(), block.size());
    if (count <= 0) break;
    text.append(block.data(), static_cast<size_t>(count));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << text;
  ::close(terminal);
  return text;
}

std::string without_colors(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Returns each text that was drawn on the line of the progress bar.
std::vector<std::string> drawings(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream lines(without_colors(text));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream drawn(line);
    for (std::string part; std::getline(drawn, part, '\r');) {
      if (part.starts_with("train ") || part.starts_with("evaluate ")) parts.push_back(part);
    }
  }
  return parts;
}

TEST(Terminal, DrawsABarThatFitsInto40Columns) {
  const TinyRun run(TinyRun::Keys{{"logging_steps", "100"}, {"save_strategy", "\"no\""}});
  const std::string text = on_terminal(run.command(), 40);
  const std::vector<std::string> bars = drawings(text);
  ASSERT_FALSE(bars.empty());
  for (const std::string& bar : bars) EXPECT_LT(bar.size(), 40U) << bar;
  EXPECT_THAT(text, HasSubstr("\x1b[1mtrain\x1b[0m"));
}

TEST(Terminal, ShowsTheShareOfTheMachinesCeiling) {
  const TinyRun run(TinyRun::Keys{{"logging_steps", "100"}, {"save_strategy", "\"no\""}});
  EXPECT_THAT(without_colors(on_terminal(run.command(), 200)),
              ContainsRegex("tok/s, [0-9]+% of ceiling\\] loss"));
}

TEST(Terminal, HasNoColoursWhereTheyAreNotWanted) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}});
  EXPECT_THAT(on_terminal(run.command(), 100, {{"NO_COLOR", "1"}}), Not(HasSubstr("\x1b")));
}

TEST(Terminal, ForcesColoursWithoutATerminal) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "2"}});
  const ProcessOptions forced{.environment = {{"FORCE_COLOR", "1"}}, .folder = "", .watch = ""};
  EXPECT_THAT(run.train({}, forced).err, HasSubstr("\x1b[1mtrain\x1b[0m 2/2"));
}

TEST(Progress, CanBeChosen) {
  const auto said = [](const std::string& progress) {
    const TinyRun run(TinyRun::Keys{{"max_steps", "3"}, {"eval_strategy", "\"no\""}});
    const ProcessResult result = run.train({"--progress", progress});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(said("bar"), HasSubstr("\rtrain"));
  EXPECT_THAT(said("plain"), ContainsRegex("\ntrain 3/3 \\(100%\\) .* loss .* epoch 0"));
  EXPECT_THAT(said("none"), Not(HasSubstr("train 3/3")));
  std::istringstream lines(said("json"));
  int logged = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{")) continue;
    const Json json = Json::parse(line);
    if (json["event"] != "log") continue;
    ++logged;
    EXPECT_EQ(json["phase"], "train");
    EXPECT_EQ(json["done"], logged);
    EXPECT_GT(json["loss"], 0);
    EXPECT_GT(json["time"], 1.7e9);
  }
  EXPECT_EQ(logged, 3);
}

// The last state of a phase that was written, as a bar or as a line.
std::string last_of(const std::string& text, const std::string& phase) {
  std::string last;
  std::string part;
  for (const char c : without_colors(text) + "\n") {
    if (c != '\r' && c != '\n') {
      part += c;
      continue;
    }
    if (part.starts_with(phase + " ")) last = part;
    part.clear();
  }
  return last;
}

TEST(Progress, EndsAt100Percent) {
  for (const std::string progress : {"bar", "plain"}) {
    SCOPED_TRACE(progress);
    // Steps that are not logged, the last one too.
    TinyRun run(TinyRun::Keys{{"task", "sequence_classification"},
                              {"validation_file", ""},
                              {"logging_strategy", "\"no\""},
                              {"eval_strategy", "\"no\""},
                              {"save_strategy", "\"no\""},
                              {"max_steps", "7"},
                              {"do_predict", "true"},
                              {"progress", progress}});
    std::string rows = "text,label\n";
    for (int i = 0; i < 24; ++i) {
      rows += "day " + std::to_string(i) + (i % 2 == 0 ? ",a\n" : ",b\n");
    }
    const std::string file = run.folder().write("rows.csv", rows);
    run.set({{"train_file", file}, {"test_file", file}, {"eval_steps", ""}});
    const ProcessResult result = run.train();
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(last_of(result.err, "train"), ContainsRegex("100%.*7/7|7/7 \\(100%\\)"));
    EXPECT_THAT(last_of(result.err, "predict"), HasSubstr("100%"));
    // What is resumed ends there too.
    const TinyRun resumed(TinyRun::Keys{{"logging_steps", "100"}, {"progress", progress}});
    resumed.train_until(39);
    EXPECT_THAT(last_of(resumed.train().err, "train"), HasSubstr("100%"));
  }
}

TEST(Progress, OfPredictionsEndsAt100Percent) {
  std::string rows = "text\n";
  for (int i = 0; i < 24000; ++i) rows += "The lamp of <mask> number " + std::to_string(i) + ".\n";
  const TemporaryFolder folder;
  const ProcessResult result =
      finetune({"predict", kMaskedLm, "--input", folder.write("rows.csv", rows), "--output",
                folder / "answers.jsonl"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(last_of(result.err, "predict"), HasSubstr("predict 24000/24000 (100%)"));
}

TEST(Progress, RefusesAnotherMode) {
  const TinyRun run;
  const ProcessResult result = run.train({"--progress", "fancy"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("auto, bar, plain, json"));
}

TEST(StatusWatch, FollowsTheRunToItsEnd) {
  const TinyRun run(TinyRun::Keys{{"max_steps", "400"}, {"eval_strategy", "\"no\""}});
  Process process(run.command());
  ASSERT_TRUE(process.wait_for_output("train 2/400"));
  const std::string screen = on_terminal(finetune_command({"status", run.out(), "--watch"}), 100);
  EXPECT_EQ(process.finish().code, 0);
  EXPECT_THAT(screen, HasSubstr("running, process"));
  EXPECT_THAT(screen, HasSubstr(": finished"));
}

}  // namespace
}  // namespace finetune::testing
