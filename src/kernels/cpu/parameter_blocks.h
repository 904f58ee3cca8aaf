// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/kernels/parameter_tensors.h"
#include "kernels/cpu/loops/adamw_blocks.h"
#include "kernels/cpu/loops/formats.h"

namespace finetune::kernels {

// Values converted at a time, so that weight and gradient in float32 stay in the L1 cache. A
// multiple of the block sizes of all formats.
constexpr int64_t kBlockValues = 2048;

// Pointers to the memory of a parameter on the CPU.
struct ParameterMemory {
  explicit ParameterMemory(const ParameterTensors& parameter)
      : count(parameter.weight.numel()),
        first_value(parameter.first_value),
        weight_is_wide(parameter.weight.scalar_type() == at::kFloat),
        gradient_is_wide(parameter.gradient.scalar_type() == at::kFloat),
        weight(parameter.weight.mutable_data_ptr()),
        gradient(parameter.gradient.const_data_ptr()),
        correction(parameter.correction.defined() ? parameter.correction.mutable_data_ptr<int8_t>()
                                                  : nullptr) {
    FT_CHECK(parameter.weight.is_contiguous() && parameter.gradient.is_contiguous() &&
                 parameter.gradient.numel() == count,
             "parameters and gradients are contiguous and of one size");
  }

  int64_t count;
  int64_t first_value;  // of the whole tensor
  bool weight_is_wide;
  bool gradient_is_wide;
  void* weight;
  const void* gradient;
  int8_t* correction;
};

// One block of a parameter in float32; a copy only where it is stored in another format.
class OpenBlock {
 public:
  OpenBlock(const ParameterMemory& memory, int64_t first, float factor)
      : memory_(memory),
        first_(first),
        count_(std::min(kBlockValues, memory.count - first)),
        narrow_(static_cast<uint16_t*>(memory.weight) + (memory.weight_is_wide ? 0 : first)) {
    if (memory.gradient_is_wide) {
      gradient_ = static_cast<const float*>(memory.gradient) + first;
      if (factor != 1.0F) scale(gradient_, factor, scaled_, count_);
      if (factor != 1.0F) gradient_ = scaled_;
    } else {
      widen(static_cast<const uint16_t*>(memory.gradient) + first, factor, scaled_, count_);
      gradient_ = scaled_;
    }
    if (memory.weight_is_wide) {
      weight_ = static_cast<float*>(memory.weight) + first;
    } else if (memory.correction != nullptr) {
      join_values(narrow_, memory.correction + first, values_, count_);
    } else {
      widen(narrow_, 1.0F, values_, count_);
    }
  }

  [[nodiscard]] WeightBlock block() { return {weight_, gradient_, count_}; }

  void write_back(uint64_t rounding_key) {
    if (memory_.weight_is_wide) return;
    if (memory_.correction != nullptr) {
      split_values(values_, narrow_, memory_.correction + first_, count_);
    } else {
      round_stochastically(values_, narrow_, count_, rounding_key,
                           static_cast<uint64_t>(memory_.first_value + first_));
    }
  }

 private:
  const ParameterMemory& memory_;
  int64_t first_;
  int64_t count_;
  uint16_t* narrow_;
  const float* gradient_ = nullptr;
  float* weight_ = values_;
  float values_[kBlockValues];
  float scaled_[kBlockValues];
};

// Calls update(block, index of its first value) for every block, each in one thread.
template <typename Update>
void update_in_blocks(const ParameterTensors& parameter, double factor, uint64_t rounding_key,
                      const Update& update) {
  const ParameterMemory memory(parameter);
  const int64_t blocks = (memory.count + kBlockValues - 1) / kBlockValues;
  at::parallel_for(0, blocks, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      OpenBlock block(memory, i * kBlockValues, static_cast<float>(factor));
      update(block.block(), i * kBlockValues);
      block.write_back(rounding_key);
    }
  });
}

}  // namespace finetune::kernels
