// SPDX-License-Identifier: MIT
#include "finetune/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace finetune {
namespace {

TEST(ThreadPool, ReturnsResultsThroughFutures) {
  for (const int64_t threads : {0, 1, 4}) {
    ThreadPool pool(threads);
    std::vector<std::future<int>> results;
    for (int i = 0; i < 100; ++i) results.push_back(pool.submit([i] { return i * i; }));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(results[static_cast<size_t>(i)].get(), i * i);
  }
}

TEST(ThreadPool, CarriesExceptionsToTheOneWhoAsks) {
  for (const int64_t threads : {0, 2}) {
    ThreadPool pool(threads);
    std::future<int> bad = pool.submit([]() -> int { throw std::runtime_error("bad"); });
    EXPECT_EQ(pool.submit([] { return 1; }).get(), 1);
    EXPECT_THROW(bad.get(), std::runtime_error);
  }
}

TEST(ThreadPool, DropsTasksThatHaveNotBegunWhenItEnds) {
  std::atomic<int> ran = 0;
  std::promise<void> started;
  std::promise<void> release;
  std::future<void> dropped;
  std::thread helper;
  {
    ThreadPool pool(1);
    std::future<void> first = pool.submit([&] {
      ++ran;
      started.set_value();
      release.get_future().wait();
    });
    started.get_future().wait();
    dropped = pool.submit([&] { ++ran; });
    // The running task is released only after the pool has dropped the waiting one.
    helper = std::thread([&] {
      dropped.wait();
      release.set_value();
    });
  }
  helper.join();
  EXPECT_EQ(ran, 1);
  EXPECT_THROW(dropped.get(), std::future_error);
}

}  // namespace
}  // namespace finetune
