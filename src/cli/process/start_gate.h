// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>

namespace finetune::cli {

// Holds forked processes until all have been forked. If one cannot be forked, or the forking
// process exits, the others exit silently.
class StartGate {
 public:
  StartGate();
  ~StartGate();
  StartGate(const StartGate&) = delete;
  StartGate& operator=(const StartGate&) = delete;

  // In the forking process: lets `count` processes pass.
  void open(size_t count);
  // In each forked process, before anything else. Returns false if the process must exit.
  [[nodiscard]] bool pass();

 private:
  void close(size_t end);

  std::array<int, 2> ends_ = {-1, -1};  // a pipe: one byte for each process that may pass
};

}  // namespace finetune::cli
