// SPDX-License-Identifier: MIT
// compile_kernels LIBNVRTC RESULTS ARCHITECTURE...: compiles every type and variant of every kernel
// with this NVRTC. Fails if one does not compile, spills registers or uses local memory. Needs no
// GPU. Prints a line for each kernel with what the worst of its entries takes. RESULTS is a folder
// where what the compiler said is kept, by its version, options and program; "" keeps nothing.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/base/hash.h"
#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/sources.h"
#include "support/file_content.h"

namespace finetune::kernels::cuda {
namespace {

// Returns the numbers that ptxas prints for the entries, in its order.
std::vector<int> numbers_in(const std::string& log, const std::string& pattern) {
  std::vector<int> numbers;
  const std::regex wanted(pattern);
  for (std::sregex_iterator match(log.begin(), log.end(), wanted), end; match != end; ++match) {
    numbers.push_back(std::stoi((*match)[1]));
  }
  return numbers;
}

int largest_in(const std::string& log, const std::string& pattern) {
  int largest = 0;
  for (const int number : numbers_in(log, pattern)) largest = std::max(largest, number);
  return largest;
}

// Four registers: ptxas spills some if a kernel uses all registers of its threads, and they stay in
// the L1 cache.
constexpr int kMostSpilled = 16;

// Returns the log of a compilation that made code.
std::string log_of(const Nvrtc& nvrtc, const std::string& program, const std::string& name,
                   const std::vector<std::string>& options, const std::string& results) {
  std::string input = nvrtc.version() + '\0' + name + '\0' + program;
  for (const std::string& option : options) input += '\0' + option;
  const std::string kept = results + "/" + hash_hex(input);
  if (!results.empty() && std::filesystem::exists(kept)) {
    std::filesystem::last_write_time(kept, std::filesystem::file_time_type::clock::now());
    return testing::file_content(kept);
  }
  const Nvrtc::Result result = nvrtc.compile(program, name, options);
  if (result.code.empty()) return "no code\n" + result.log;
  if (!results.empty()) FileSystem::local().write_atomically(kept, result.log);
  return result.log;
}

int compile_all(const Nvrtc& nvrtc, const std::string& results, const std::string& architecture) {
  int failures = 0;
  for (const ListedKernel& kernel : listed_kernels()) {
    std::vector<std::string> options = compile_options();
    options.push_back("--gpu-architecture=sm_" + architecture);
    options.emplace_back("--ptxas-options=-v");
    const std::string log =
        log_of(nvrtc, program_of_all(kernel), std::string(kernel.name) + ".cu", options, results);
    const size_t entries = kernel.types.size() * static_cast<size_t>(kernel.variants);
    const std::vector<int> registers = numbers_in(log, "Used ([0-9]+) registers");
    const bool is_good = registers.size() == entries && !log.starts_with("no code") &&
                         largest_in(log, "([0-9]+) bytes spill stores") <= kMostSpilled;
    std::printf("NVRTC %s sm_%s %s: %zu entries, %d registers, %d bytes shared, %d bytes stack%s\n",
                nvrtc.version().c_str(), architecture.c_str(), kernel.name, registers.size(),
                largest_in(log, "Used ([0-9]+) registers"), largest_in(log, "([0-9]+) bytes smem"),
                largest_in(log, "([0-9]+) bytes stack frame"), is_good ? "" : " FAILED");
    if (!is_good) std::printf("%s\n", log.c_str());
    failures += is_good ? 0 : 1;
  }
  return failures;
}

}  // namespace
}  // namespace finetune::kernels::cuda

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  using finetune::kernels::cuda::Nvrtc;
  if (count < 4) {
    std::fprintf(stderr, "usage: compile_kernels LIBNVRTC RESULTS ARCHITECTURE...\n");
    return 2;
  }
  int failures = 0;
  try {
    const Nvrtc nvrtc(words[1]);
    for (int i = 3; i < count; ++i) {
      failures += finetune::kernels::cuda::compile_all(nvrtc, words[2], words[i]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
