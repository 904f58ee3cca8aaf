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

// A fixed number of threads that run tasks in the order they were submitted. Destroying the pool
// drops the tasks that have not begun (their futures then throw std::future_error) and waits for
// those that have. Without threads a task runs inside submit().
class ThreadPool {
 public:
  explicit ThreadPool(int64_t threads);  // Requires: threads >= 0
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The task's result, or what it threw, arrives through the future. Futures do not wait when they
  // are destroyed.
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
