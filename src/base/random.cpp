// SPDX-License-Identifier: MIT
#include "finetune/base/random.h"

#include <cmath>
#include <numbers>

namespace finetune::random {

uint32_t Sequence::next() {
  const uint64_t block_index = used_ / 4;
  if (used_ % 4 == 0) {
    block_ = philox(
        {static_cast<uint32_t>(block_index), static_cast<uint32_t>(block_index >> 32), 0, 0}, key_);
  }
  return block_[used_++ % 4];
}

uint32_t Sequence::below(uint32_t bound) {
  // Lemire, "Fast random integer generation in an interval", TOMACS 2019.
  uint64_t product = uint64_t{next()} * bound;
  if (static_cast<uint32_t>(product) < bound) {
    const uint32_t threshold = (0u - bound) % bound;
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next()} * bound;
  }
  return static_cast<uint32_t>(product >> 32);
}

double Sequence::normal() {
  const double radius = std::sqrt(-2.0 * std::log((next() + 1.0) * 0x1.0p-32));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace finetune::random
