// SPDX-License-Identifier: MIT
#include "finetune/base/background_task.h"

#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr int kNiceness = 10;

}  // namespace

BackgroundTask::~BackgroundTask() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundTask::start(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    FT_CHECK(!work_, "one piece of work at a time");
    failure_ = nullptr;
    work_ = std::move(work);
  }
  if (thread_.joinable()) {
    changed_.notify_all();
    return;
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {  // the thread could not be created
    work_here();
  }
}

void BackgroundTask::work_here() {
  std::exception_ptr failure;
  try {
    work_();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  work_ = nullptr;
}

bool BackgroundTask::is_running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(work_);
}

bool BackgroundTask::wait(std::optional<double> seconds) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return !work_; };
  if (!seconds) {
    changed_.wait(lock, idle);
    return true;
  }
  return changed_.wait_for(lock, std::chrono::duration<double>(*seconds), idle);
}

std::exception_ptr BackgroundTask::take_failure() {
  const std::lock_guard lock(mutex_);
  FT_CHECK(!work_, "the work is still running");
  return std::exchange(failure_, nullptr);
}

void lower_priority() {
  ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNiceness);
}

void BackgroundTask::run() {
  lower_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || work_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    std::function<void()> done = std::exchange(work_, nullptr);
    changed_.notify_all();
    lock.unlock();
    done = nullptr;  // free what the job owned outside the lock
    lock.lock();
  }
}

}  // namespace finetune
