// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "finetune/kernels/parameter_store.h"

// AdamW whose moments are kept in 8 bits: formats, and an update that reads and writes weight,
// gradient and state once, a cache-sized block at a time. CPU: vectorised kernels, where every
// value depends on its block only; other devices: the same formulas by tensor operations.
namespace finetune {

// Of one update of one parameter.
struct AdamWUpdate {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  int64_t updates = 1;        // of this parameter, this one included
  double factor = 1.0;        // of the gradient
  uint64_t rounding_key = 0;  // of a bfloat16 weight
};

// bitsandbytes' block-wise format: a code of the dynamic map times the largest magnitude of the
// value's block of 256 (Dettmers et al. 2022, sections 2.1 and 2.2).
constexpr int64_t kDynamicBlock = 256;
struct DynamicState {
  Tensor state1, state2;    // uint8, like the parameter
  Tensor absmax1, absmax2;  // float32, one a block
};
// bitsandbytes' create_dynamic_map(signed): 256 values, float32.
[[nodiscard]] Tensor dynamic_map(bool is_signed);
// As its CUDA kernel does it, with exact divisions and square roots: constants in float32, decay
// after the update, codes rounded to the nearest, elements whose gradient is not finite left out
// and their moments zeroed; blocks whose largest moment is below 2^-126 are zeros. (Its CPU path
// looks codes up in 65,536 equal bins, which makes 1.6e-5 of every smaller second moment.)
void update_adamw(const Parameter& parameter, const DynamicState& state, const AdamWUpdate& update);
void encode(const Tensor& exp_avg, const Tensor& exp_avg_sq, const DynamicState& state);
void decode(const DynamicState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq);

// The same arithmetic for what bitsandbytes keeps at 32 bits.
struct WideState {
  Tensor state1, state2;  // float32, like the parameter
};
void update_adamw(const Parameter& parameter, const WideState& state, const AdamWUpdate& update);

// FlashOptim's companded format (section 3.2) with groups of 128 and float32 scales:
//   m: s = max |m|,     x = m / s, q = round(127 * 2 x / (1 + |x|));  x = q / (254 - |q|)
//   v: s = max sqrt(v),            q = round(255 sqrt(v) / s);        v = (q s / 255)^2
constexpr int64_t kCompandedGroup = 128;
struct CompandedState {
  Tensor exp_avg;           // int8, like the parameter
  Tensor exp_avg_scale;     // float32, one a group
  Tensor exp_avg_sq;        // uint8
  Tensor exp_avg_sq_scale;  // float32
};
// As torch's AdamW (decay first), between decoding and encoding.
void update_adamw(const Parameter& parameter, const CompandedState& state,
                  const AdamWUpdate& update);
void encode(const Tensor& exp_avg, const Tensor& exp_avg_sq, const CompandedState& state);
void decode(const CompandedState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq);

// torch's AdamW, moments in float32: what the companded update does between decoding and encoding.
struct MomentState {
  Tensor exp_avg, exp_avg_sq;  // float32, like the parameter
};

// One of several updates that are made together. The parameter has its gradient.
using AdamWState = std::variant<MomentState, WideState, DynamicState, CompandedState>;
struct AdamWStep {
  const Parameter* parameter = nullptr;
  AdamWState state;
  AdamWUpdate update;
};
// A launch for each combination of formats instead of some for each parameter. False, with nothing
// done, where the device has no such kernel.
[[nodiscard]] bool update_adamw_together(const std::vector<AdamWStep>& steps);

}  // namespace finetune
