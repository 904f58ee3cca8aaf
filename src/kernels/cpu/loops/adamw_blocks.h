// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/interface/adamw_numbers.h"
#include "kernels/interface/dynamic_map.h"

// The updates of finetune/kernels/quantized_state.h over a contiguous range of values, without
// torch.
namespace finetune::kernels {

struct WeightBlock {
  float* weight;
  const float* gradient;
  int64_t count;
};

// The state from the range's first value on; quantization blocks of 256 values start there.
struct DynamicBlock {
  uint8_t* state1;
  uint8_t* state2;
  float* absmax1;
  float* absmax2;
};
void update_dynamic(const WeightBlock& block, const DynamicBlock& state,
                    const BitsAndBytesNumbers& numbers);
void encode_dynamic(const float* exp_avg, const float* exp_avg_sq, int64_t count,
                    const DynamicBlock& state);
void decode_dynamic(const DynamicBlock& state, int64_t count, float* exp_avg, float* exp_avg_sq);

void update_wide(const WeightBlock& block, float* state1, float* state2,
                 const BitsAndBytesNumbers& numbers);

// The state from the range's first value on; groups of 128 values start there.
struct CompandedBlock {
  int8_t* exp_avg;
  uint8_t* exp_avg_sq;
  float* exp_avg_scale;
  float* exp_avg_sq_scale;
};
void update_companded(const WeightBlock& block, const CompandedBlock& state,
                      const AdamWNumbers& numbers);
void encode_companded(const float* exp_avg, const float* exp_avg_sq, int64_t count,
                      const CompandedBlock& state);
void decode_companded(const CompandedBlock& state, int64_t count, float* exp_avg,
                      float* exp_avg_sq);

// The same with instructions that every processor has. The tests require equal bits.
void update_dynamic_portable(const WeightBlock& block, const DynamicBlock& state,
                             const BitsAndBytesNumbers& numbers);
void update_wide_portable(const WeightBlock& block, float* state1, float* state2,
                          const BitsAndBytesNumbers& numbers);
void update_companded_portable(const WeightBlock& block, const CompandedBlock& state,
                               const AdamWNumbers& numbers);

}  // namespace finetune::kernels
