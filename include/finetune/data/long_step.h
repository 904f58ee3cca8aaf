// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace finetune {

// Names of a long operation that reports its progress: hashing files, a pass over all lengths.
struct StepName {
  std::string phase = {};       // "hash"
  std::string doing = {};       // "hashing train_file", for the message of Interrupted
  std::string unit = "sample";  // the unit of counts
};

struct StepProgress {
  std::string phase;
  std::string unit;
  int64_t done = 0;
  int64_t total = 0;
};

// Called on the working thread: at the start, at most ten times a second, and at the end. Also
// called for quick operations; the display shows only slow ones.
using ShowStep = std::function<void(const StepProgress&)>;

// Counts the progress of such an operation and polls for signals.
class LongStep {
 public:
  LongStep(StepName name, int64_t total, ShowStep show)
      : LongStep(std::move(name), total, std::move(show), 1) {}
  // Counts bytes, shown in kB.
  [[nodiscard]] static LongStep of_bytes(StepName name, uint64_t bytes, ShowStep show) {
    name.unit = "kB";
    return {std::move(name), static_cast<int64_t>(bytes), std::move(show), 1000};
  }

  // Cheap enough to be called every microsecond. Throws Interrupted.
  void reach(int64_t done);
  void advance(int64_t by = 1) { reach(done_ + by); }
  void add_bytes(uint64_t bytes) { advance(static_cast<int64_t>(bytes)); }

 private:
  LongStep(StepName name, int64_t total, ShowStep show, int64_t scale);

  void tell() const;

  StepName name_;
  int64_t done_ = 0;
  int64_t total_;
  ShowStep show_;
  int64_t scale_;  // reported units per counted unit
  std::chrono::steady_clock::time_point reported_ = std::chrono::steady_clock::now();
};

}  // namespace finetune
