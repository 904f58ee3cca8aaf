// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace finetune::tokenizer {

// Reports of work that runs in a separate process.
class ProcessReports {
 public:
  explicit ProcessReports(int descriptor) : descriptor_(descriptor) {}
  void progress(int64_t done, int64_t total) const;

 private:
  int descriptor_;
};

struct ProcessListener {
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<void(const std::string& line)> line = {};  // of its standard error
};

// The process ended without a result.
class ProcessDied : public std::runtime_error {
 public:
  ProcessDied(int signal_number, const std::string& said)
      : std::runtime_error(said), signal_number_(signal_number) {}
  // 0 where it left by itself.
  [[nodiscard]] int signal_number() const { return signal_number_; }

 private:
  int signal_number_;
};

// Runs `work` in a separate process and returns its result: a library that aborts, crashes or
// cannot be stopped ends only that process. Throws the work's Error here; Interrupted, with the
// process killed, when a stop is requested; ProcessDied with its last report. The process dies with
// this one. `processors`: how many it may use at once; 0 for all. Requires: no other thread of this
// process, because a fork copies only one.
[[nodiscard]] std::string run_in_process(
    const std::function<std::string(const ProcessReports&)>& work, const ProcessListener& listener,
    int processors, const std::string& phase);

}  // namespace finetune::tokenizer
