// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "finetune/kernels/parameter_tensors.h"

// AdamW with 8-bit moments: storage formats, and an update that reads and writes weight, gradient
// and state once, in cache-sized blocks. On the CPU vectorised kernels, whose values depend only on
// their own block; on other devices the same formulas as tensor operations.
namespace finetune {

// Arguments of one update of one parameter.
struct AdamWUpdate {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  int64_t updates = 1;        // updates of this parameter, including this one
  double factor = 1.0;        // multiplies the gradient
  uint64_t rounding_key = 0;  // random key for rounding a bfloat16 weight
};

// bitsandbytes' block-wise format: each value is a code of the dynamic map times the largest
// magnitude in its block of 256 (Dettmers et al. 2022, sections 2.1 and 2.2).
constexpr int64_t kDynamicBlock = 256;
struct DynamicState {
  Tensor state1, state2;    // uint8, shape of the parameter
  Tensor absmax1, absmax2;  // float32, one per block
};
// Returns bitsandbytes' create_dynamic_map(signed): 256 values, float32.
[[nodiscard]] Tensor dynamic_map(bool is_signed);
// The update of bitsandbytes' CUDA kernel with exact divisions and square roots: constants in
// float32, decay after the update, codes rounded to nearest. Elements with a non-finite gradient
// are skipped and their moments zeroed; blocks whose largest moment is below 2^-126 become zeros.
// (Its CPU path looks codes up in 65,536 equal bins, which turns every smaller second moment into
// 1.6e-5.)
void update_adamw(const ParameterTensors& parameter, const DynamicState& state,
                  const AdamWUpdate& update);
void encode(const Tensor& exp_avg, const Tensor& exp_avg_sq, const DynamicState& state);
void decode(const DynamicState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq);

// The same arithmetic for states that bitsandbytes keeps in 32 bits.
struct WideState {
  Tensor state1, state2;  // float32, shape of the parameter
};
void update_adamw(const ParameterTensors& parameter, const WideState& state,
                  const AdamWUpdate& update);

// FlashOptim's companded format (section 3.2) with groups of 128 and float32 scales:
//   m: s = max |m|,     x = m / s, q = round(127 * 2 x / (1 + |x|));  x = q / (254 - |q|)
//   v: s = max sqrt(v),            q = round(255 sqrt(v) / s);        v = (q s / 255)^2
constexpr int64_t kCompandedGroup = 128;
struct CompandedState {
  Tensor exp_avg;           // int8, shape of the parameter
  Tensor exp_avg_scale;     // float32, one per group
  Tensor exp_avg_sq;        // uint8
  Tensor exp_avg_sq_scale;  // float32
};
// torch's AdamW (decay first) between decoding and encoding.
void update_adamw(const ParameterTensors& parameter, const CompandedState& state,
                  const AdamWUpdate& update);
void encode(const Tensor& exp_avg, const Tensor& exp_avg_sq, const CompandedState& state);
void decode(const CompandedState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq);

// torch's AdamW with moments in float32, as in the companded update between decoding and encoding.
struct MomentState {
  Tensor exp_avg, exp_avg_sq;  // float32, shape of the parameter
};

// One of several updates made by one call. The parameter has a gradient.
using AdamWState = std::variant<MomentState, WideState, DynamicState, CompandedState>;
struct AdamWStep {
  const ParameterTensors* parameter = nullptr;
  AdamWState state;
  AdamWUpdate update;
};
// Launches one kernel per combination of formats instead of several per parameter. Returns false,
// and does nothing, if the device has no such kernel.
[[nodiscard]] bool update_adamw_together(const std::vector<AdamWStep>& steps);

}  // namespace finetune
