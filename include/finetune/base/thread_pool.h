// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace finetune {

// A fixed number of threads that run tasks in the order of submission. The destructor drops tasks
// that have not started (their futures throw std::future_error) and waits for the others. With 0
// threads submit() runs the task itself.
class ThreadPool {
 public:
  explicit ThreadPool(int64_t threads);  // Requires: threads >= 0
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The future receives the task's result or exception. Its destructor does not wait.
  template <class Task>
  [[nodiscard]] std::future<std::invoke_result_t<Task>> submit(Task task) {
    using Result = std::invoke_result_t<Task>;
    auto packaged = std::make_shared<std::packaged_task<Result()>>(std::move(task));
    std::future<Result> result = packaged->get_future();
    push([packaged] { (*packaged)(); });
    return result;
  }

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(threads_.size()); }

 private:
  void push(std::function<void()> task);
  void work();
  void stop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace finetune
