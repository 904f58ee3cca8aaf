// SPDX-License-Identifier: MIT
#include "kernels/plain/philox.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>

namespace finetune::kernels {
namespace {

constexpr int64_t kWord = 0xFFFFFFFF;

// The high word of a product, with what a round adds to it.
Tensor mixed(const Tensor& product, const Tensor& word, uint32_t key) {
  const Tensor high =
      at::bitwise_right_shift(product, at::Scalar(32)).bitwise_and_(at::Scalar(kWord));
  return at::bitwise_xor(high, word).bitwise_xor_(at::Scalar(static_cast<int64_t>(key)));
}

}  // namespace

// Computed in int64, where a product of two 32-bit numbers may overflow but keeps its 64 bits; in
// place, because numbers for the scores of attention are many: eight lists of them at once.
std::array<Tensor, 4> philox_by_tensor_operations(std::array<Tensor, 4> counter, uint64_t key) {
  auto& c = counter;
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const Tensor product0 = c[0] * int64_t{0xD2511F53};
    const Tensor product1 = c[2] * int64_t{0xCD9E8D57};
    const Tensor next0 = mixed(product1, c[1], key0);
    const Tensor next2 = mixed(product0, c[3], key1);
    c = {next0, product1.bitwise_and_(at::Scalar(kWord)), next2,
         product0.bitwise_and_(at::Scalar(kWord))};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

}  // namespace finetune::kernels
