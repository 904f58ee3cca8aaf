// SPDX-License-Identifier: MIT
#include "finetune/kernels/nf4.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "finetune/kernels/one_threaded.h"
#include "finetune/kernels/quantized_state.h"
#include "kernels/cpu/loops/nf4.h"
#include "kernels/interface/kernels.h"

namespace finetune::kernels {
namespace {

// bitsandbytes' quantize_blockwise() on the CPU looks codes up in a table of [-1, 1] in 65,536
// steps: the value is rounded to a step, and the step has the nearest value of the map, of two the
// lower.
class StepTable {
 public:
  explicit StepTable(const float* map) {
    int code = 0;
    for (int i = 0; i < kSteps; ++i) {
      const float value = -1.0F + (2.0F * static_cast<float>(i)) / static_cast<float>(kSteps - 1);
      while (code < 255 && 0.5F * (map[code] + map[code + 1]) < value) ++code;
      codes_[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
    }
  }
  [[nodiscard]] uint8_t code_of(float x) const {
    const float half = 0.5F * static_cast<float>(kSteps - 1);
    const int index = static_cast<int>(std::fma(std::clamp(x, -1.0F, 1.0F) + 1.0F, half, 0.5F));
    return codes_[static_cast<size_t>(index)];
  }

 private:
  static constexpr int kSteps = 65536;
  std::array<uint8_t, kSteps> codes_{};
};

// Returns the largest magnitude.
float quantize_scale_block(const float* scales, int64_t count, float offset, const StepTable& table,
                           uint8_t* codes) {
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(scales[i] - offset));
  const float inverse = 1.0F / largest;
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = largest == 0.0F ? 0 : table.code_of((scales[i] - offset) * inverse);
  }
  return largest;
}

}  // namespace

const std::array<float, 16>& nf4_map() {
  static constexpr std::array<float, 16> kMap = {-1.0F,
                                                 -0.6961928009986877F,
                                                 -0.5250730514526367F,
                                                 -0.39491748809814453F,
                                                 -0.28444138169288635F,
                                                 -0.18477343022823334F,
                                                 -0.09105003625154495F,
                                                 0.0F,
                                                 0.07958029955625534F,
                                                 0.16093020141124725F,
                                                 0.24611230194568634F,
                                                 0.33791524171829224F,
                                                 0.44070982933044434F,
                                                 0.5626170039176941F,
                                                 0.7229568362236023F,
                                                 1.0F};
  return kMap;
}

void quantize_nf4(const Tensor& values, const Tensor& codes, const Tensor& scales) {
  const int64_t count = values.numel();
  FT_CHECK(values.is_contiguous() && values.scalar_type() == at::kFloat, "contiguous float32");
  FT_CHECK(codes.is_contiguous() && codes.scalar_type() == at::kByte &&
               codes.numel() == nf4_code_bytes(count) && scales.is_contiguous() &&
               scales.scalar_type() == at::kFloat && scales.numel() == nf4_blocks(count),
           "codes and scales of these values");
  constexpr int64_t kGrain = 1024;  // blocks
  const auto* source = values.const_data_ptr<float>();
  auto* const bytes = codes.mutable_data_ptr<uint8_t>();
  auto* const found = scales.mutable_data_ptr<float>();
  at::parallel_for(0, scales.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kNf4Block;
    quantize_nf4_blocks(source + first, std::min(count, end * kNf4Block) - first, nf4_map(),
                        bytes + first / 2, found + begin);
  });
}

Tensor dequantize_nf4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                      at::ScalarType type) {
  FT_CHECK(codes.is_contiguous() && codes.scalar_type() == at::kByte && scales.is_contiguous() &&
               scales.scalar_type() == at::kFloat && first >= 0 && count >= 0 &&
               nf4_code_bytes(first + count) <= codes.numel() &&
               nf4_blocks(first + count) <= scales.numel(),
           "codes and scales of these values");
  return kernels_for(scales).dequantize_nf4(codes, scales, first, count, type);
}

NestedNf4Scales quantize_nf4_scales(const Tensor& scales) {
  FT_CHECK(scales.is_contiguous() && scales.scalar_type() == at::kFloat, "contiguous float32");
  const OneThread one(true);  // the last bits of a sum depend on its division
  const int64_t count = scales.numel();
  const int64_t blocks = (count + kNf4ScaleBlock - 1) / kNf4ScaleBlock;
  NestedNf4Scales result{.codes = at::empty({count}, at::kByte),
                         .absmax = at::empty({blocks}, at::kFloat),
                         .offset = scales.mean().item<float>(),
                         .map = dynamic_map(true)};
  static const StepTable table(dynamic_map(true).const_data_ptr<float>());
  const auto* source = scales.const_data_ptr<float>();
  auto* const codes = result.codes.mutable_data_ptr<uint8_t>();
  auto* const absmax = result.absmax.mutable_data_ptr<float>();
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * kNf4ScaleBlock;
    absmax[block] = quantize_scale_block(source + first, std::min(kNf4ScaleBlock, count - first),
                                         result.offset, table, codes + first);
  }
  return result;
}

Tensor NestedNf4Scales::unpack() const {
  const Tensor spread = absmax.repeat_interleave(kNf4ScaleBlock).narrow(0, 0, codes.numel());
  const Tensor rest = map.index_select(0, codes.to(at::kLong)) * spread;
  return rest + offset;
}

}  // namespace finetune::kernels
