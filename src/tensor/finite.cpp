// SPDX-License-Identifier: MIT
#include "finetune/tensor/finite.h"

#include <ATen/Parallel.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "finetune/base/error.h"

namespace finetune {
namespace {

// NaN and Inf have all exponent bits set: adding the lowest exponent bit carries into the sign bit.
template <class Bits>
struct Exponent {
  Bits mask;
  Bits lowest;
};

// A fixed count of elements, so that the compiler vectorises.
constexpr int64_t kAtOnce = 1024;
constexpr int64_t kPerThread = int64_t{1} << 18;

template <class Bits>
Bits carries(const Bits* bits, int64_t count, Exponent<Bits> exponent) {
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found = static_cast<Bits>(found | ((bits[i] & exponent.mask) + exponent.lowest));
  }
  return static_cast<Bits>(found & static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1)));
}

template <class Bits>
Bits carries_of_block(const Bits* bits, Exponent<Bits> exponent) {
  return carries(bits, kAtOnce, exponent);
}

template <class Bits>
int64_t first_in(const Bits* bits, int64_t begin, int64_t end, Exponent<Bits> exponent) {
  int64_t i = begin;
  while (i + kAtOnce <= end && carries_of_block(bits + i, exponent) == 0) i += kAtOnce;
  while (i < end && carries(bits + i, 1, exponent) == 0) ++i;
  return i;
}

// Calls search(bits, exponent) for the type's width; returns -1 for types that are always finite.
template <class Search>
int64_t by_width(const Tensor& values, const Search& search) {
  const void* data = values.const_data_ptr();
  switch (values.scalar_type()) {
    case at::kFloat:
      return search(static_cast<const uint32_t*>(data), Exponent<uint32_t>{0x7F800000, 0x00800000});
    case at::kBFloat16:
      return search(static_cast<const uint16_t*>(data), Exponent<uint16_t>{0x7F80, 0x0080});
    case at::kHalf:
      return search(static_cast<const uint16_t*>(data), Exponent<uint16_t>{0x7C00, 0x0400});
    case at::kDouble:
      return search(static_cast<const uint64_t*>(data),
                    Exponent<uint64_t>{0x7FF0000000000000, 0x0010000000000000});
    default:
      return -1;
  }
}

bool is_finite_in_memory(const Tensor& values) {
  const int64_t count = values.numel();
  const int64_t found = by_width(values, [&](const auto* bits, const auto exponent) -> int64_t {
    std::atomic<bool> finite = true;
    at::parallel_for(0, count, kPerThread, [&](int64_t begin, int64_t end) {
      if (first_in(bits, begin, end, exponent) != end) finite = false;
    });
    return finite ? -1 : 0;
  });
  return found < 0;
}

}  // namespace

bool is_finite(const Tensor& values) {
  if (values.numel() == 0 || !(values.is_floating_point() || values.is_complex())) return true;
  const Tensor numbers = values.is_complex() ? at::view_as_real(values) : values.detach();
  if (numbers.is_cpu()) return is_finite_in_memory(numbers.contiguous());
  // The minimum of values with a NaN is NaN.
  const auto [least, most] = at::aminmax(numbers);
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

std::optional<int64_t> first_nonfinite(const Tensor& values) {
  FT_CHECK(values.is_cpu() && values.is_contiguous(), "values in host memory, one behind another");
  const int64_t count = values.numel();
  const int64_t found = by_width(values, [&](const auto* bits, const auto exponent) -> int64_t {
    return first_in(bits, 0, count, exponent);
  });
  if (found < 0 || found == count) return std::nullopt;
  return found;
}

void refuse_nonfinite(const std::string& name, const Tensor& values, int64_t first_element) {
  const std::optional<int64_t> position = first_nonfinite(values);
  if (!position) return;
  throw NonFinite("the tensor '" + name + "' contains NaN or Inf (element " +
                  std::to_string(first_element + *position) +
                  "), and no run can resume from such a file");
}

}  // namespace finetune
