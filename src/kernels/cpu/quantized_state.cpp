// SPDX-License-Identifier: MIT
#include "kernels/cpu/operations.h"
#include "kernels/cpu/parameter_blocks.h"

namespace finetune::kernels::cpu {
namespace {

DynamicBlock block_of(const DynamicState& state, int64_t first) {
  return {state.state1.mutable_data_ptr<uint8_t>() + first,
          state.state2.mutable_data_ptr<uint8_t>() + first,
          state.absmax1.mutable_data_ptr<float>() + first / kDynamicBlock,
          state.absmax2.mutable_data_ptr<float>() + first / kDynamicBlock};
}

CompandedBlock block_of(const CompandedState& state, int64_t first) {
  return {state.exp_avg.mutable_data_ptr<int8_t>() + first,
          state.exp_avg_sq.mutable_data_ptr<uint8_t>() + first,
          state.exp_avg_scale.mutable_data_ptr<float>() + first / kCompandedGroup,
          state.exp_avg_sq_scale.mutable_data_ptr<float>() + first / kCompandedGroup};
}

}  // namespace

void update_dynamic(const ParameterTensors& parameter, const DynamicState& state,
                    const AdamWUpdate& update, const BitsAndBytesNumbers& numbers) {
  update_in_blocks(parameter, update.factor, update.rounding_key,
                   [&](const WeightBlock& block, int64_t first) {
                     kernels::update_dynamic(block, block_of(state, first), numbers);
                   });
}

void update_wide(const ParameterTensors& parameter, const WideState& state,
                 const AdamWUpdate& update, const BitsAndBytesNumbers& numbers) {
  float* state1 = state.state1.mutable_data_ptr<float>();
  float* state2 = state.state2.mutable_data_ptr<float>();
  update_in_blocks(parameter, update.factor, update.rounding_key,
                   [&](const WeightBlock& block, int64_t first) {
                     kernels::update_wide(block, state1 + first, state2 + first, numbers);
                   });
}

void update_companded(const ParameterTensors& parameter, const CompandedState& state,
                      const AdamWUpdate& update, const AdamWNumbers& numbers) {
  update_in_blocks(parameter, update.factor, update.rounding_key,
                   [&](const WeightBlock& block, int64_t first) {
                     kernels::update_companded(block, block_of(state, first), numbers);
                   });
}

void encode_dynamic(const Tensor& exp_avg, const Tensor& exp_avg_sq, const DynamicState& state) {
  kernels::encode_dynamic(exp_avg.const_data_ptr<float>(), exp_avg_sq.const_data_ptr<float>(),
                          exp_avg.numel(), block_of(state, 0));
}

void decode_dynamic(const DynamicState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq) {
  kernels::decode_dynamic(block_of(state, 0), exp_avg.numel(), exp_avg.mutable_data_ptr<float>(),
                          exp_avg_sq.mutable_data_ptr<float>());
}

void encode_companded(const Tensor& exp_avg, const Tensor& exp_avg_sq,
                      const CompandedState& state) {
  kernels::encode_companded(exp_avg.const_data_ptr<float>(), exp_avg_sq.const_data_ptr<float>(),
                            exp_avg.numel(), block_of(state, 0));
}

void decode_companded(const CompandedState& state, const Tensor& exp_avg,
                      const Tensor& exp_avg_sq) {
  kernels::decode_companded(block_of(state, 0), exp_avg.numel(), exp_avg.mutable_data_ptr<float>(),
                            exp_avg_sq.mutable_data_ptr<float>());
}

}  // namespace finetune::kernels::cpu
