// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace finetune {

// Runs one job at a time on a dedicated thread of lower priority. The thread starts with the first
// job; if the system cannot create one, start() runs the job itself. Used from one thread.
class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask();  // waits for the work; what it threw is lost
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  void start(std::function<void()> work);  // Requires: nothing is running
  [[nodiscard]] bool is_running() const;
  // Waits until nothing is running, no longer than `seconds` where they are given; whether that is
  // so now.
  bool wait(std::optional<double> seconds = std::nullopt);
  // What the last work threw, once; nullptr where it threw nothing. Requires: nothing is running.
  [[nodiscard]] std::exception_ptr take_failure();

 private:
  void run();
  void work_here();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // there: running
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace finetune
