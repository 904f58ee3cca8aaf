// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace finetune::tokenizer {

// Sends progress of work in a separate process to its parent.
class ProcessReports {
 public:
  explicit ProcessReports(int descriptor) : descriptor_(descriptor) {}
  void progress(int64_t done, int64_t total) const;

 private:
  int descriptor_;
};

struct ProcessListener {
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<void(const std::string& line)> line = {};  // a line of its standard error
};

// The process ended without a result.
class ProcessDied : public std::runtime_error {
 public:
  ProcessDied(int signal_number, const std::string& said)
      : std::runtime_error(said), signal_number_(signal_number) {}
  // 0 if it was not ended by a signal.
  [[nodiscard]] int signal_number() const { return signal_number_; }

 private:
  int signal_number_;
};

// Runs `work` in a separate process and returns its result: a library that aborts, crashes or hangs
// affects only that process. Throws the Error of `work`; Interrupted, after killing the process, if
// a stop is requested; ProcessDied with the process's last report. The process is killed if this
// one dies. `processors`: how many it may use; 0 for all. Requires: no other thread in this
// process, because fork copies only one.
[[nodiscard]] std::string run_in_process(
    const std::function<std::string(const ProcessReports&)>& work, const ProcessListener& listener,
    int processors, const std::string& phase);

}  // namespace finetune::tokenizer
