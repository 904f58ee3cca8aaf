// SPDX-License-Identifier: MIT
// Block-sparse attention forwards and backwards, as a layer runs it.
//   bigbird_benchmark TOKENS HIDDEN HEADS BATCH RUNS DROPOUT [DEVICE]
// Prints one JSON line: seconds and processor seconds of each run, and the most memory beyond the
// inputs (query, key, value and the output's gradient), in bytes.
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/interface/attention_core.h"

namespace finetune {
namespace {

int64_t resident_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t value = 0;
    if (word == field && status >> value) return value;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

struct Inputs {
  Tensor query, key, value, gradient;
};

void run(const Inputs& inputs, const kernels::BlockLayer& layer) {
  const kernels::BlockAttention attention =
      kernels::make_block_attention(inputs.query, inputs.key, inputs.value, {}, layer, {.seed = 1});
  const kernels::BlockContext forward = kernels::block_attention(attention);
  kernels::block_attention_backward(attention, forward, inputs.gradient);
}

void measure(const std::vector<std::string>& arguments) {
  const auto number = [&](size_t i) { return std::stoll(arguments.at(i)); };
  const c10::Device device(arguments.size() > 6 ? arguments[6] : "cpu");
  const std::vector<int64_t> shape = {number(3), number(0), number(1)};
  const double dropout = std::stod(arguments.at(5));
  kernels::BlockLayer layer = {.heads = number(2), .dropout_probability = dropout};
  layer.dropout = DropoutStream{.seed = 1};
  const auto fresh = [&] { return at::randn(shape, at::kFloat).to(device); };
  std::string seconds;
  std::string processor;
  int64_t most = 0;
  for (int64_t i = 0; i <= number(4); ++i) {
    const Inputs inputs = {fresh(), fresh(), fresh(), fresh()};
    reset_peak();
    const int64_t before = resident_kib("VmRSS:");
    const std::clock_t cpu = std::clock();
    const auto start = std::chrono::steady_clock::now();
    run(inputs, layer);
    if (!device.is_cpu()) (void)inputs.query.sum().item<float>();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    const double used = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    // The first run is the one that has to ask for memory; it warms up the rest.
    most = std::max(most, resident_kib("VmHWM:") - before);
    if (i == 0) continue;
    seconds += (seconds.empty() ? "" : ", ") + std::to_string(wall.count());
    processor += (processor.empty() ? "" : ", ") + std::to_string(used);
  }
  std::printf("{\"seconds\": [%s], \"processor\": [%s], \"extra_bytes\": %lld, \"threads\": %d}\n",
              seconds.c_str(), processor.c_str(), static_cast<long long>(most) * 1024,
              at::get_num_threads());
}

}  // namespace
}  // namespace finetune

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "see the head of this program's source\n");
    return 2;
  }
  const c10::NoGradGuard no_grad;
  finetune::measure({argv + 1, argv + argc});
  return 0;
}
