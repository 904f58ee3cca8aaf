// SPDX-License-Identifier: MIT
#include "tokenizer/training/library_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <new>

#include "finetune/base/error.h"

namespace finetune::tokenizer {
namespace {

std::string run(const std::function<std::string(const ProcessReports&)>& work,
                const ProcessListener& listener = {}, int processors = 0) {
  return run_in_process(work, listener, processors, "testing");
}

int signal_of(const std::function<std::string(const ProcessReports&)>& work) {
  try {
    (void)run(work);
  } catch (const ProcessDied& died) {
    return died.signal_number();
  }
  return -1;
}

TEST(LibraryProcess, ReturnsWhatTheWorkReturns) {
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(run([&](const ProcessReports&) { return large; }), large);
}

TEST(LibraryProcess, PassesReportsAndLinesOn) {
  std::vector<int64_t> done;
  std::vector<std::string> lines;
  const ProcessListener listener{
      .progress = [&](int64_t part, int64_t whole) { done.push_back(100 * part / whole); },
      .line = [&](const std::string& line) { lines.push_back(line); }};
  (void)run(
      [](const ProcessReports& reports) {
        reports.progress(1, 4);
        std::cerr << "one\ntwo\n";
        reports.progress(4, 4);
        return std::string();
      },
      listener);
  EXPECT_EQ(done, (std::vector<int64_t>{25, 100}));
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two"}));
}

TEST(LibraryProcess, ThrowsTheErrorOfTheWork) {
  try {
    (void)run([](const ProcessReports&) -> std::string {
      throw Error(ErrorKind::kDevice, "of the work");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_STREQ(error.what(), "of the work");
  }
}

TEST(LibraryProcess, TellsHowAProcessDied) {
  EXPECT_EQ(signal_of([](const ProcessReports&) -> std::string { ::_exit(3); }), 0);
  EXPECT_EQ(signal_of([](const ProcessReports&) -> std::string { throw std::bad_alloc(); }),
            SIGKILL);
  const auto kill = [](const ProcessReports&) -> std::string {
    (void)::signal(SIGSEGV, SIG_DFL);
    (void)::raise(SIGSEGV);
    return {};
  };
  EXPECT_EQ(signal_of(kill), SIGSEGV);
}

TEST(LibraryProcess, KeepsTheLastThatItSaid) {
  const auto work = [](const ProcessReports&) -> std::string {
    std::cerr << "file.cc(3) LOG(INFO) continuing\nfile.cc(4) [x > 0] why\n"
                 "Program terminated with an unrecoverable error.\n";
    ::_exit(255);
  };
  try {
    (void)run(work);
    FAIL() << "nothing was thrown";
  } catch (const ProcessDied& died) {
    EXPECT_STREQ(died.what(), "file.cc(4) [x > 0] why");
  }
}

TEST(LibraryProcess, UsesAsManyProcessorsAsItMay) {
  const auto count = [](const ProcessReports&) {
    cpu_set_t allowed;
    (void)::sched_getaffinity(0, sizeof(allowed), &allowed);
    return std::to_string(CPU_COUNT(&allowed));
  };
  EXPECT_EQ(run(count, {}, 1), "1");
  EXPECT_EQ(run(count, {}, 0), count(ProcessReports(-1)));
}

}  // namespace
}  // namespace finetune::tokenizer
