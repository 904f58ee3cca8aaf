// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

// Counter-based random numbers: every number is a function of its purpose and coordinates, never of
// how many were drawn before it, so there is no generator state to save or disturb.
namespace finetune::random {

// One block of Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011, section 3.3); equal to Random123's philox4x32.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Finaliser of SplitMix64 (Steele et al., OOPSLA 2014): a bijection that mixes every bit.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The purpose of a random number. Values are part of the checkpoint format: append, never renumber.
enum class Purpose : uint64_t {
  kInitialization = 1,
  kOrder = 2,
  kMasking = 3,
  kEvaluationMasking = 4,
  kDropout = 5,
  kSplit = 6,
  kGradientRounding = 7,
  kWeightRounding = 8,
  kExamplePairs = 9,
  kAttentionBlocks = 10,
  kGeneration = 11,
};

// Folds a purpose and up to three coordinates into one 64-bit key.
constexpr uint64_t make_key(uint64_t seed, Purpose purpose, uint64_t a = 0, uint64_t b = 0) {
  return mix(mix(mix(mix(seed) ^ static_cast<uint64_t>(purpose)) ^ a) ^ b);
}

// The sequence of random numbers of one key, e.g. of one sample's masks. Cheap to copy.
class Sequence {
 public:
  explicit Sequence(uint64_t key)
      : key_{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)} {}

  uint32_t next();
  uint32_t below(uint32_t bound);  // uniform in [0, bound) without bias; Requires: bound > 0
  double uniform() { return next() * 0x1.0p-32; }  // [0, 1)
  double normal();                                 // mean 0, standard deviation 1 (Box-Muller)

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> block_{};
  uint64_t used_ = 0;
};

}  // namespace finetune::random
