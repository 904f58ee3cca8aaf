// SPDX-License-Identifier: MIT
#include "finetune/base/thread_pool.h"

#include <string>
#include <system_error>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {

ThreadPool::ThreadPool(int64_t threads) {
  FT_CHECK(threads >= 0, "a pool has no negative number of threads");
  try {
    for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    stop();
    throw Error(ErrorKind::kIo,
                format_text("cannot start {} threads; lower the number of workers", threads));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  dropped.clear();  // before waiting: a running task may wait for a dropped one
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::push(std::function<void()> task) {
  if (threads_.empty()) {
    task();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void ThreadPool::work() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace finetune
