// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace finetune::tokenizer {

// Reports of work that runs in a process of its own.
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

// Runs `work` in a process of its own and returns what it returns: a library that ends its process
// at a mistake, crashes or cannot be stopped ends that one alone. An Error of the work is thrown
// here; Interrupted, with the process killed, when a stop is asked for; ProcessDied with the last
// that it said. The process dies with this one. `processors`: on how many it may run at once; 0 for
// all. Requires: no other thread of ours runs, as forked processes have none.
[[nodiscard]] std::string run_in_process(
    const std::function<std::string(const ProcessReports&)>& work, const ProcessListener& listener,
    int processors, const std::string& phase);

}  // namespace finetune::tokenizer
