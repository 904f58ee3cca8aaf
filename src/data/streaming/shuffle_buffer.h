// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace finetune {

// The order in which a shuffle buffer returns the samples of a stream: it contains the next `size`
// samples, returns a random one of them and puts the next sample of the stream in its slot; at the
// end of the stream it returns the remaining samples in random order (datasets'
// IterableDataset.shuffle). The slot is a function of (seed, epoch, index of the output), so that
// the buffer can be reconstructed at any output without the previous ones. The order is part of the
// checkpoint format. A buffer of one sample keeps the order of the stream.
class ShuffleBuffer {
 public:
  ShuffleBuffer(int64_t size, uint64_t seed);  // Requires: size >= 1

  // Appends the indices of the samples that are the outputs [begin, end) of an epoch. Consecutive
  // calls cost constant time per output; a jump costs O(size log size). Requires: `known` samples
  // exist, at least `end`; if there are fewer than end + size(), they are all samples of the epoch.
  void append(int64_t epoch, int64_t begin, int64_t end, int64_t known,
              std::vector<int64_t>& samples);

  // Returns the samples in the buffer before output `position`, in slot order. Requires: as
  // append().
  [[nodiscard]] const std::vector<int64_t>& content_at(int64_t epoch, int64_t position,
                                                       int64_t known);

  [[nodiscard]] int64_t size() const { return size_; }

 private:
  [[nodiscard]] int64_t slot(int64_t epoch, int64_t position) const;
  void move_to(int64_t epoch, int64_t position);

  int64_t size_;
  uint64_t seed_;
  int64_t epoch_ = -1;          // of the slots; -1: none yet
  int64_t position_ = 0;        // the next output
  std::vector<int64_t> slots_;  // samples in the buffer, before the end of the stream
  std::vector<int64_t> left_;   // remaining samples, at the end of the stream
};

}  // namespace finetune
