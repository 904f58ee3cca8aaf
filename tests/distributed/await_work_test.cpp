// SPDX-License-Identifier: MIT
#include "distributed/await_work.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/golden.h"

namespace finetune::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Work that is completed after a number of polls.
class SlowWork final : public c10d::Work {
 public:
  explicit SlowWork(int looks, std::exception_ptr error = nullptr)
      : looks_(looks), error_(std::move(error)) {}
  bool isCompleted() override { return looks_-- <= 0; }
  [[nodiscard]] std::exception_ptr exception() const override { return error_; }
  void synchronize() override { is_joined = true; }

  bool is_joined = false;  // with the caller's stream

 private:
  int looks_;
  std::exception_ptr error_;
};

constexpr int kForever = 1'000'000'000;

std::string problem(SlowWork& work, milliseconds limit, const std::function<bool()>& is_over) {
  try {
    await_work(work, limit, is_over);
  } catch (const c10::DistBackendError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(AwaitWork, EndsWithTheWork) {
  SlowWork work(30);
  EXPECT_EQ(problem(work, milliseconds(60'000), [] { return false; }), "");
  EXPECT_TRUE(work.is_joined);
}

TEST(AwaitWork, TellsWhatTheWorkFailedWith) {
  const auto error =
      std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, "NCCL error: remote"));
  SlowWork work(3, error);
  EXPECT_GOLDEN(problem(work, milliseconds(60'000), {}));
  EXPECT_FALSE(work.is_joined);
}

TEST(AwaitWork, GivesUpAtTheLimit) {
  SlowWork work(kForever);
  EXPECT_THAT(problem(work, milliseconds(50), {}), HasSubstr("ddp_timeout"));
  EXPECT_FALSE(work.is_joined);
}

TEST(AwaitWork, GivesUpWhereAnotherProcessIsGone) {
  SlowWork work(kForever);
  int asked = 0;
  EXPECT_GOLDEN(problem(work, milliseconds(60'000), [&] { return ++asked == 2; }));
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace finetune::testing
