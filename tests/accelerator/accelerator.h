// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "integration/tiny_run.h"

namespace finetune::testing {

[[nodiscard]] std::string pretend_accelerator_path();
[[nodiscard]] std::string planted_faults_path();
// The library with the names of CUDA's, alone in a folder.
[[nodiscard]] std::string pretend_cuda_path();

// Sums of the reports that processes wrote into a folder (tests/accelerator/README.md).
struct AcceleratorReport {
  int64_t kernels = 0;
  int64_t bytes = 0;  // read and written
  int64_t waits = 0;
  int64_t peak_bytes = 0;  // of the process with the highest peak
  std::map<std::string, int64_t> calls;
  std::map<std::string, std::set<std::string>> types;  // of torch's operators
  std::map<std::string, int64_t> waits_by_reason;
  std::multiset<std::string> devices;  // one entry for each process
  bool tf32 = false;
  bool deterministic = false;
  std::string cublas_workspace;
};

[[nodiscard]] AcceleratorReport read_reports(const std::string& folder);

// Starts runs with the pretend accelerator preloaded and reads the report of each. The destructor
// checks that operators.txt lists every operator that was called, with the types of its tensors.
class Accelerator {
 public:
  Accelerator() = default;
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  using Environment = std::map<std::string, std::string>;
  // Returns the options of a process; its report is written into a new folder.
  [[nodiscard]] ProcessOptions options(const Environment& more = {});
  ProcessResult run(const Arguments& words, const Environment& more = {});
  ProcessResult train(const TinyRun& run, const Arguments& more = {},
                      const Environment& environment = {});

  // Returns the report of the latest process, after it exited.
  [[nodiscard]] AcceleratorReport report() const { return read_reports(latest_); }

 private:
  TemporaryFolder folder_;
  std::string latest_;
  int reports_ = 0;
};

}  // namespace finetune::testing
