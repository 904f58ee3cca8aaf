// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace finetune {

// Memory that the processes of one machine share, through which they exchange large tensors with
// two copies instead of a connection's. Made before the processes are; each then calls the same
// members in the same order, from one thread at a time.
class SharedWindow {
 public:
  // Throws Error(kIo). Never destroyed: processes may use it until they exit.
  [[nodiscard]] static SharedWindow& make(int64_t processes);

  // Whether a process is lost; checked while a process waits for the others.
  using IsOver = std::function<bool()>;

  // As World::all_gather() and all_to_all(), in bytes. Return false where `is_over` did.
  [[nodiscard]] bool all_gather(int64_t rank, std::span<std::byte> whole,
                                std::span<const std::byte> part, const IsOver& is_over);
  [[nodiscard]] bool all_to_all(int64_t rank, std::span<std::byte> output,
                                std::span<const std::byte> input,
                                const std::vector<int64_t>& output_sizes,
                                const std::vector<int64_t>& input_sizes, const IsOver& is_over);

 private:
  struct Shared;
  explicit SharedWindow(int64_t processes);
  // Of a rank, in one of the two halves, which take turns: while one is read the other is written.
  [[nodiscard]] std::byte* slot(int64_t turn, int64_t rank) const;
  [[nodiscard]] bool wait_for_all(const IsOver& is_over) const;

  int64_t processes_;
  Shared* shared_ = nullptr;
  std::byte* slots_ = nullptr;
  int64_t turn_ = 0;  // of this process
};

}  // namespace finetune
