// SPDX-License-Identifier: MIT
#include "kernels/plain/philox.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>

namespace finetune::kernels {
namespace {

constexpr int64_t kWord = 0xFFFFFFFF;

Tensor high_word(const Tensor& product) {
  return at::bitwise_and(at::bitwise_right_shift(product, at::Scalar(32)), at::Scalar(kWord));
}

Tensor low_word(const Tensor& product) { return at::bitwise_and(product, at::Scalar(kWord)); }

}  // namespace

// Computed in int64, where a product of two 32-bit numbers may overflow but keeps its 64 bits.
std::array<Tensor, 4> philox_by_tensor_operations(std::array<Tensor, 4> counter, uint64_t key) {
  auto& c = counter;
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Tensor product0 = c[0] * int64_t{0xD2511F53};
    const Tensor product1 = c[2] * int64_t{0xCD9E8D57};
    const Tensor next0 = at::bitwise_xor(at::bitwise_xor(high_word(product1), c[1]),
                                         at::Scalar(static_cast<int64_t>(key0)));
    const Tensor next2 = at::bitwise_xor(at::bitwise_xor(high_word(product0), c[3]),
                                         at::Scalar(static_cast<int64_t>(key1)));
    c = {next0, low_word(product1), next2, low_word(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

}  // namespace finetune::kernels
