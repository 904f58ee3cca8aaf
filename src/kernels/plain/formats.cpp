// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "kernels/plain/operations.h"
#include "kernels/plain/philox.h"

namespace finetune::kernels::plain {
namespace {

constexpr int64_t kSign = INT32_MIN;
constexpr int64_t kInfinityBits = 0x7F800000;
constexpr int64_t kQuietNan = 0x7FC00000;
constexpr int64_t kLargest = 0x7F7F0000;

Tensor bits_of(const Tensor& values) { return values.view(at::kInt); }

Tensor masked(const Tensor& bits, int64_t mask) { return at::bitwise_and(bits, at::Scalar(mask)); }

Tensor shifted_right(const Tensor& bits, int64_t positions) {
  return at::bitwise_right_shift(bits, at::Scalar(positions));
}

// Returns `finite` for finite values, else the bits of infinity or NaN.
Tensor with_class(const Tensor& finite, const Tensor& magnitude) {
  const Tensor special = at::where(magnitude > kInfinityBits, at::Scalar(kQuietNan), magnitude);
  return at::where(magnitude < kInfinityBits, finite, special.to(at::kInt));
}

// Copies the upper 16 bits, because torch's conversion makes other NaNs.
void put_upper_halves(const Tensor& target, const Tensor& bits) {
  target.view(at::kShort).copy_(shifted_right(bits, 16).view(target.sizes()));
}

// The 16-bit random numbers of `count` elements, int32.
Tensor make_numbers(int64_t count, const RoundingKey& key, const Tensor& like) {
  const auto options = like.options().dtype(at::kLong);
  const auto first_block = static_cast<int64_t>(key.first_element / 8);
  const auto skipped = static_cast<int64_t>(key.first_element % 8);
  const int64_t blocks = (skipped + count + 7) / 8;
  const Tensor block = at::arange(blocks, options) + first_block;
  const Tensor zero = at::zeros({1}, options);
  const auto words = philox_by_tensor_operations(
      {masked(block, 0xFFFFFFFF), shifted_right(block, 32), zero, zero}, key.key);
  std::vector<Tensor> halves;
  for (const Tensor& word : words) {
    halves.push_back(masked(word, 0xFFFF));
    halves.push_back(shifted_right(word, 16));
  }
  return at::stack(halves, -1).flatten().narrow(0, skipped, count).to(at::kInt);
}

}  // namespace

void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  const Tensor bits = bits_of(values.flatten());
  const Tensor magnitude = masked(bits, 0x7FFFFFFF);
  const Tensor number = make_numbers(bits.numel(), key, bits);
  // The bits of NaN plus the number would overflow int32: clamp them first. with_class() ignores
  // the result for them.
  const Tensor finite =
      (magnitude.clamp_max(kInfinityBits - 1) + number).clamp_max(kLargest | 0xFFFF);
  const Tensor rounded = masked(with_class(finite, magnitude), 0x7FFF0000);
  const Tensor result = at::bitwise_or(rounded, masked(bits, kSign));
  put_upper_halves(target, result);
}

void add_all_stochastically(const std::vector<RoundedSum>& sums) {
  for (const auto& [target, values, key] : sums) {
    const Tensor sum = target.to(at::kFloat) + values.view(target.sizes());
    plain::round_stochastically(target, sum, key);
  }
}

// As in kernels/cpu/loops/formats.cpp, with integer operations on whole tensors.
void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction) {
  const Tensor bits = bits_of(values.flatten());
  const Tensor magnitude = masked(bits, 0x7FFFFFFF);
  const Tensor finite = magnitude.clamp_max(kInfinityBits - 1);
  const Tensor nearest = masked(finite + 0x7FFF + masked(shifted_right(finite, 16), 1), 0x7FFF0000)
                             .clamp_max(kLargest);
  const Tensor distance = finite - nearest;
  const Tensor exponent = shifted_right(finite, 23);
  const Tensor doubled = (shifted_right(nearest, 23) > exponent).logical_and(exponent > 0);
  const Tensor half = doubled.to(at::kInt) + 15;
  const Tensor one = at::ones_like(half);
  const Tensor scaled =
      at::bitwise_right_shift(distance.abs() * 127 + at::bitwise_left_shift(one, half - 1), half);
  const Tensor size = scaled.clamp_max(127);
  const Tensor negative = (distance < 0).logical_xor(bits < 0);
  const Tensor special = at::where(magnitude < kInfinityBits, size, at::zeros({1}, size.options()));
  correction.copy_(at::where(negative, -special, special).view(correction.sizes()));
  put_upper_halves(weight, at::bitwise_or(with_class(nearest, magnitude), masked(bits, kSign)));
}

namespace {

// weight + correction / 127 * 2^(exponent - 8), half a last place of the weight.
void join(const SplitTensor& split) {
  const auto& [weight, correction, values] = split;
  const Tensor wide = weight.to(at::kFloat).flatten();
  const Tensor exponent = masked(shifted_right(bits_of(wide), 23), 0xFF).clamp(1, 254);
  const Tensor unit = at::bitwise_left_shift(exponent, at::Scalar(23)).view(at::kFloat);
  const Tensor share = correction.flatten().to(at::kFloat) / 127.0 * 0x1.0p-8;
  values.copy_(at::where(share == 0, wide, wide + share * unit).view(values.sizes()));
}

}  // namespace

void join_all_values(const std::vector<SplitTensor>& list) {
  for (const SplitTensor& one : list) join(one);
}

Tensor joined_rows(const Tensor& weight, const Tensor& correction, const Tensor& indices) {
  const Tensor rows = at::embedding(weight, indices);
  const Tensor values = at::empty_like(rows, rows.options().dtype(at::kFloat));
  kernels::join_all_values({{rows, at::embedding(correction, indices), values}});
  return values;
}

}  // namespace finetune::kernels::plain
