// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>

namespace finetune::cli {

// Holds processes that are being forked until all of them are there: where one cannot be started,
// or the one who forks them ends, the others leave without a word.
class StartGate {
 public:
  StartGate();
  ~StartGate();
  StartGate(const StartGate&) = delete;
  StartGate& operator=(const StartGate&) = delete;

  // Where they are forked: lets `count` of them pass.
  void open(size_t count);
  // In each of them, before anything else. False: it is to leave.
  [[nodiscard]] bool pass();

 private:
  void close(size_t end);

  std::array<int, 2> ends_ = {-1, -1};  // of a pipe: a byte for each that may pass
};

}  // namespace finetune::cli
