// SPDX-License-Identifier: MIT
// What collectives of N processes on one machine cost, for processes.py: seconds to join, of a sum of
// three numbers, and of a sum of gradients, as a JSON line. The target processes_benchmark is built
// on demand alone.
#include <ATen/ops/ones.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "finetune/distributed/board.h"
#include "finetune/distributed/membership.h"
#include "finetune/distributed/world.h"
#include "finetune/tensor/device.h"

namespace {

using namespace finetune;

double seconds_of(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(const std::function<void()>& action, int rounds) {
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) all.push_back(seconds_of(action));
  std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
  return all[static_cast<size_t>(rounds) / 2];
}

void measure(const Membership& membership, int64_t megabytes) {
  set_num_threads(1);
  std::shared_ptr<World> world;
  const double meeting =
      seconds_of([&] { world = join_world(membership, "benchmark", /*timeout_seconds=*/600); });
  std::array<double, 3> numbers = {1.0, 2.0, 3.0};
  const double small = median([&] { world->sum(std::span<double>(numbers)); }, 101);
  const Tensor gradients = at::ones({megabytes * 1'000'000 / 4}, at::kFloat);
  const double large = median([&] { world->sum(gradients); }, 9);
  if (!world->is_first()) return;
  std::cout << "{\"processes\": " << world->size() << ", \"meet_seconds\": " << meeting
            << ", \"small_sum_seconds\": " << small << ", \"megabytes\": " << megabytes
            << ", \"sum_seconds\": " << large << "}" << std::endl;
}

}  // namespace

// PROCESSES MEGABYTES
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Membership one{.size = std::stoll(argv[1]), .token = "benchmark", .board = &make_board(std::stoll(argv[1]))};
  std::string path = "/tmp/finetune-collective-XXXXXX";
  const int descriptor = ::mkstemp(path.data());
  one.file = path;
  for (one.rank = 0; one.rank < one.size; ++one.rank) {
    if (::fork() != 0) continue;
    measure(one, std::stoll(argv[2]));
    ::_exit(0);
  }
  bool failed = false;
  for (int status = 0; ::wait(&status) > 0;) failed |= status != 0;
  ::close(descriptor);
  ::unlink(path.c_str());
  return failed ? 1 : 0;
}
