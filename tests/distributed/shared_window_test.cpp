// SPDX-License-Identifier: MIT
#include "distributed/shared_window.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>

namespace finetune::testing {
namespace {

// Runs `work` in processes that share a window; its value is their exit code.
void in_forks(int64_t processes, const std::function<bool(SharedWindow&, int64_t)>& work) {
  SharedWindow& window = SharedWindow::make(processes);
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < processes; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work(window, rank) ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

std::vector<std::byte> bytes(size_t count, int64_t seed) {
  std::minstd_rand numbers(static_cast<unsigned>(seed + 1));
  std::vector<std::byte> values(count);
  for (std::byte& value : values) value = static_cast<std::byte>(numbers() >> 8U);
  return values;
}

const SharedWindow::IsOver kNobodyIsLost = [] { return false; };

TEST(SharedWindow, GathersTheSamePartsEverywhere) {
  in_forks(3, [](SharedWindow& window, int64_t rank) {
    for (const size_t count : {0UL, 1UL, 1000UL, 1UL << 20U, (5UL << 20U) + 3}) {
      std::vector<std::byte> whole(3 * count);
      const std::vector<std::byte> own = bytes(count, rank);
      if (!window.all_gather(rank, whole, own, kNobodyIsLost)) return false;
      for (int64_t other = 0; other < 3; ++other) {
        const std::vector<std::byte> expected = bytes(count, other);
        if (!std::equal(expected.begin(), expected.end(),
                        whole.begin() + static_cast<std::ptrdiff_t>(count) * other)) {
          return false;
        }
      }
    }
    return true;
  });
}

// Each pair has another size; many short exchanges follow each other without a pause.
TEST(SharedWindow, BringsEachPartToItsProcess) {
  in_forks(4, [](SharedWindow& window, int64_t rank) {
    for (int64_t round = 0; round < 300; ++round) {
      const auto size = [&](int64_t from, int64_t to) {
        return round == 7 ? 700'001 * from + to : (from * 5 + to * 3 + round) % 11;
      };
      std::vector<std::byte> input;
      std::vector<std::byte> expected;
      std::vector<int64_t> input_sizes;
      std::vector<int64_t> output_sizes;
      for (int64_t other = 0; other < 4; ++other) {
        input_sizes.push_back(size(rank, other));
        output_sizes.push_back(size(other, rank));
        const auto given = bytes(static_cast<size_t>(input_sizes.back()), rank * 4 + other);
        input.insert(input.end(), given.begin(), given.end());
        const auto taken = bytes(static_cast<size_t>(output_sizes.back()), other * 4 + rank);
        expected.insert(expected.end(), taken.begin(), taken.end());
      }
      std::vector<std::byte> output(expected.size());
      if (!window.all_to_all(rank, output, input, output_sizes, input_sizes, kNobodyIsLost)) {
        return false;
      }
      if (output != expected) return false;
    }
    return true;
  });
}

TEST(SharedWindow, IsLeftWhereAProcessIsLost) {
  in_forks(2, [](SharedWindow& window, int64_t rank) {
    if (rank == 1) return true;
    std::vector<std::byte> whole(20);
    return !window.all_gather(rank, whole, bytes(10, rank), [] { return true; });
  });
}

}  // namespace
}  // namespace finetune::testing
