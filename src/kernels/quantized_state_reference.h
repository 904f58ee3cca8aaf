// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/parameter_chunks.h"
#include "finetune/kernels/quantized_state.h"
#include "kernels/adamw_blocks_cpu.h"

// The updates of finetune/kernels/quantized_state.h by plain tensor operations: what devices
// without a kernel use, and what the kernels are tested against. Chunks begin where blocks do.
namespace finetune::kernels {

void update_reference(const ParameterChunk& chunk, const DynamicState& state,
                      const BitsAndBytesNumbers& numbers);
void update_reference(const ParameterChunk& chunk, const WideState& state,
                      const BitsAndBytesNumbers& numbers);
void update_reference(const ParameterChunk& chunk, const CompandedState& state,
                      const AdamWNumbers& numbers);

// Of flat tensors.
void encode_reference(const Tensor& exp_avg, const Tensor& exp_avg_sq, const DynamicState& state);
void decode_reference(const DynamicState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq);
void encode_reference(const Tensor& exp_avg, const Tensor& exp_avg_sq, const CompandedState& state);
void decode_reference(const CompandedState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq);

}  // namespace finetune::kernels
