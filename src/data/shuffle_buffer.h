// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace finetune {

// The order in which a shuffle buffer hands out the samples of a stream: it holds the next `size`
// samples, hands out a random one of them and puts the next sample of the stream in its slot; at
// the end of the stream it hands out what is left in random order (datasets'
// IterableDataset.shuffle). Which slot is taken is a function of (seed, epoch, index of the
// output), so that the buffer can be reconstructed at any output without those before. The values
// are part of the checkpoint format. A buffer of one sample keeps the order of the stream.
class ShuffleBuffer {
 public:
  ShuffleBuffer(int64_t size, uint64_t seed);  // Requires: size >= 1

  // Appends the numbers of the samples that are the outputs [begin, end) of an epoch. Consecutive
  // calls cost constant time per output; a jump costs O(size log size). Requires: `known` samples
  // exist, at least `end`; where it is less than end + size(), these are all samples of the epoch.
  void append(int64_t epoch, int64_t begin, int64_t end, int64_t known,
              std::vector<int64_t>& samples);

  // The samples in the buffer before output `place`, in slot order. Requires: as append().
  [[nodiscard]] const std::vector<int64_t>& content_at(int64_t epoch, int64_t place, int64_t known);

  [[nodiscard]] int64_t size() const { return size_; }

 private:
  [[nodiscard]] int64_t slot(int64_t epoch, int64_t place) const;
  void move_to(int64_t epoch, int64_t place);

  int64_t size_;
  uint64_t seed_;
  int64_t epoch_ = -1;          // of the slots; none so far
  int64_t place_ = 0;           // the next output
  std::vector<int64_t> slots_;  // samples; before the end of the stream
  std::vector<int64_t> left_;   // at the end of the stream: without those that were handed out
};

}  // namespace finetune
