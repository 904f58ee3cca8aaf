// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace finetune {

// Makes the calling thread yield to the others of the process: on Linux a priority is a thread's.
void lower_priority();

// Runs one job at a time on a dedicated thread of lower priority. The first job starts the thread;
// if the system cannot create it, start() runs the job itself. Used from one thread.
class BackgroundTask {
 public:
  BackgroundTask() = default;
  ~BackgroundTask();  // waits for the job; its exception is dropped
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  void start(std::function<void()> work);  // Requires: no job is running
  [[nodiscard]] bool is_running() const;
  // Waits until no job is running, at most `seconds` if given. Returns whether none is running.
  bool wait(std::optional<double> seconds = std::nullopt);
  // Returns the last job's exception, once; nullptr if it did not throw. Requires: no job is
  // running.
  [[nodiscard]] std::exception_ptr take_failure();

 private:
  void run();
  void work_here();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // set while a job is running
  std::exception_ptr failure_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace finetune
