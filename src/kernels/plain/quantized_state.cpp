// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "finetune/kernels/parameter_chunks.h"
#include "kernels/interface/dynamic_map.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {
namespace {

constexpr int64_t kLargestCode = 255;

// A map on a device: the values of its codes, and the boundaries between them.
struct MapTensors {
  Tensor values, boundaries;
};

// Copied to each device once: a copy makes the host wait. Never destroyed, because a static tensor
// could outlive what frees its memory.
const MapTensors& map_on(c10::Device device, bool is_signed) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<std::string, bool>, MapTensors>();
  const std::lock_guard lock(mutex);
  MapTensors& tensors = known[{device.str(), is_signed}];
  if (!tensors.values.defined()) {
    const DynamicMap& map = is_signed ? signed_map() : unsigned_map();
    const auto copy_of = [&](const float* first, size_t count) {
      return at::tensor(at::ArrayRef<float>(first, count), at::kFloat).to(device);
    };
    tensors = {copy_of(map.values.data(), map.values.size()),
               copy_of(map.boundaries.data(), map.boundaries.size())};
  }
  return tensors;
}

// Returns the largest magnitude of every block, [blocks].
Tensor largest_magnitudes(const Tensor& values, int64_t block) {
  const int64_t missing = (block - values.numel() % block) % block;
  return at::amax(at::constant_pad_nd(values.abs(), {0, missing}).view({-1, block}), {1});
}

// Repeats one number per block for every value: [count].
Tensor spread(const Tensor& of_blocks, int64_t block, int64_t count) {
  return of_blocks.repeat_interleave(block).narrow(0, 0, count);
}

// Returns the scales of a chunk's blocks.
Tensor blocks_of(const ParameterChunk& chunk, const Tensor& of_blocks, int64_t block) {
  return of_blocks.narrow(0, chunk.first / block, (chunk.count + block - 1) / block);
}

// [count] codes; those of a block of zeros are NaN's.
Tensor nearest_codes(const Tensor& values, const Tensor& absmax, bool is_signed) {
  const Tensor& boundaries = map_on(values.device(), is_signed).boundaries;
  const Tensor scaled = values * absmax.reciprocal();
  return at::searchsorted(boundaries, scaled, /*out_int32=*/false, /*right=*/true);
}

DynamicState part_of(const ParameterChunk& chunk, const DynamicState& state) {
  return {chunk.of(state.state1), chunk.of(state.state2),
          blocks_of(chunk, state.absmax1, kDynamicBlock),
          blocks_of(chunk, state.absmax2, kDynamicBlock)};
}

CompandedState part_of(const ParameterChunk& chunk, const CompandedState& state) {
  return {chunk.of(state.exp_avg), blocks_of(chunk, state.exp_avg_scale, kCompandedGroup),
          chunk.of(state.exp_avg_sq), blocks_of(chunk, state.exp_avg_sq_scale, kCompandedGroup)};
}

// Codes of m: round(254 m / (scale + |m|)), in [-127, 127]. Codes of sqrt(v): round(255 sqrt(v) /
// scale), in [0, 255]. The scale is the largest magnitude of a group.
void encode_roots(const Tensor& exp_avg, const Tensor& roots, const CompandedState& state) {
  const int64_t count = exp_avg.numel();
  state.exp_avg_scale.copy_(largest_magnitudes(exp_avg, kCompandedGroup));
  state.exp_avg_sq_scale.copy_(largest_magnitudes(roots, kCompandedGroup));
  const Tensor scale1 = spread(state.exp_avg_scale, kCompandedGroup, count);
  const Tensor sum = (scale1 + exp_avg.abs()).clamp_min(std::numeric_limits<float>::min());
  state.exp_avg.view(-1).copy_((exp_avg * 254.0 / sum).round());
  const Tensor inverse2 =
      at::where(state.exp_avg_sq_scale > 0,
                at::zeros_like(state.exp_avg_sq_scale).fill_(255.0) / state.exp_avg_sq_scale,
                at::zeros_like(state.exp_avg_sq_scale));
  state.exp_avg_sq.view(-1).copy_((roots * spread(inverse2, kCompandedGroup, count)).round());
}

// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, then
// w = (w + step_size m / (sqrt(v) + epsilon)) decay. As in bitsandbytes, a non-finite gradient
// leaves the weight as it is and zeroes both moments.
void update_chunk(const ParameterChunk& chunk, const DynamicState& state,
                  const BitsAndBytesNumbers& n) {
  const DynamicState part = part_of(chunk, state);
  const Tensor& g = chunk.gradient;
  Tensor first = at::zeros_like(g);
  Tensor second = at::zeros_like(g);
  decode_dynamic(part, first, second);
  second = second * n.beta2 + g * n.gradient2 * g;
  first = first * n.beta1 + g * n.gradient1;
  const Tensor step = first / (second.sqrt() + n.epsilon) * n.step_size;
  const Tensor is_finite = g.isfinite();
  chunk.weight.copy_(at::where(is_finite, (chunk.weight + step) * n.decay, chunk.weight));
  const Tensor zero = at::zeros_like(g);
  encode_dynamic(at::where(is_finite, first, zero), at::where(is_finite, second, zero), part);
}

// The same equations with moments in float32.
void update_chunk(const ParameterChunk& chunk, const WideState& state,
                  const BitsAndBytesNumbers& n) {
  const Tensor& g = chunk.gradient;
  const Tensor first = chunk.of(state.state1);
  const Tensor second = chunk.of(state.state2);
  first.copy_(first * n.beta1 + g * n.gradient1);
  second.copy_(second * n.beta2 + g * g * n.gradient2);
  const Tensor step = first / (second.sqrt() + n.epsilon) * n.step_size;
  chunk.weight.copy_((chunk.weight + step) * n.decay);
}

// torch's equation, w = decay w + step_size m / (sqrt(v) correction + epsilon). The second code is
// of sqrt(v), so v itself is never stored.
void update_chunk(const ParameterChunk& chunk, const CompandedState& state, const AdamWNumbers& n) {
  const CompandedState part = part_of(chunk, state);
  const Tensor& g = chunk.gradient;
  Tensor first = at::zeros_like(g);
  Tensor second = at::zeros_like(g);
  decode_companded(part, first, second);
  first = first + (g - first) * n.gradient1;
  const Tensor roots = (second * n.beta2 + g * n.gradient2 * g).sqrt();
  const Tensor step = first * n.step_size / (roots * n.correction + n.epsilon);
  chunk.weight.copy_(chunk.weight * n.decay + step);
  encode_roots(first, roots, part);
}

template <typename State, typename Numbers>
void update_by_chunks(const ParameterTensors& parameter, const State& state,
                      const AdamWUpdate& update, const Numbers& numbers) {
  update_in_chunks(parameter, update.factor, update.rounding_key,
                   [&](const ParameterChunk& chunk) { update_chunk(chunk, state, numbers); });
}

}  // namespace

void update_dynamic(const ParameterTensors& parameter, const DynamicState& state,
                    const AdamWUpdate& update, const BitsAndBytesNumbers& numbers) {
  update_by_chunks(parameter, state, update, numbers);
}

void update_wide(const ParameterTensors& parameter, const WideState& state,
                 const AdamWUpdate& update, const BitsAndBytesNumbers& numbers) {
  update_by_chunks(parameter, state, update, numbers);
}

void update_companded(const ParameterTensors& parameter, const CompandedState& state,
                      const AdamWUpdate& update, const AdamWNumbers& numbers) {
  update_by_chunks(parameter, state, update, numbers);
}

void encode_dynamic(const Tensor& exp_avg, const Tensor& exp_avg_sq, const DynamicState& state) {
  const int64_t count = exp_avg.numel();
  const Tensor first = exp_avg.view(-1);
  const Tensor second = exp_avg_sq.view(-1);
  const auto scales = [](const Tensor& values) {
    const Tensor largest = largest_magnitudes(values, kDynamicBlock);
    return at::where(largest < std::numeric_limits<float>::min(), at::zeros_like(largest), largest);
  };
  state.absmax1.copy_(scales(first));
  state.absmax2.copy_(scales(second));
  const Tensor absmax1 = spread(state.absmax1, kDynamicBlock, count);
  const Tensor absmax2 = spread(state.absmax2, kDynamicBlock, count);
  const Tensor codes = nearest_codes(first, absmax1, true);
  const Tensor codes1 = at::where(first.signbit(), codes.clamp_max(126), codes);
  state.state1.view(-1).copy_(at::where(absmax1 == 0, at::Scalar(kLargestCode), codes1));
  const Tensor codes2 = nearest_codes(second, absmax2, false);
  state.state2.view(-1).copy_(at::where(absmax2 == 0, at::zeros_like(codes2), codes2));
}

void decode_dynamic(const DynamicState& state, const Tensor& exp_avg, const Tensor& exp_avg_sq) {
  const int64_t count = exp_avg.numel();
  const auto decoded = [&](const Tensor& codes, const Tensor& absmax, bool is_signed) {
    const Tensor& map = map_on(codes.device(), is_signed).values;
    return map.index_select(0, codes.view(-1).to(at::kLong)) * spread(absmax, kDynamicBlock, count);
  };
  exp_avg.view(-1).copy_(decoded(state.state1, state.absmax1, true));
  exp_avg_sq.view(-1).copy_(decoded(state.state2, state.absmax2, false));
}

void encode_companded(const Tensor& exp_avg, const Tensor& exp_avg_sq,
                      const CompandedState& state) {
  encode_roots(exp_avg.view(-1), exp_avg_sq.view(-1).sqrt(), state);
}

// The inverse of encode_roots(): m = scale q / (254 - |q|), sqrt(v) = scale q / 255.
void decode_companded(const CompandedState& state, const Tensor& exp_avg,
                      const Tensor& exp_avg_sq) {
  const int64_t count = exp_avg.numel();
  const Tensor q = state.exp_avg.view(-1).to(at::kFloat);
  const Tensor share = q / (-q.abs() + 254.0);
  exp_avg.view(-1).copy_(share * spread(state.exp_avg_scale, kCompandedGroup, count));
  const Tensor unit = state.exp_avg_sq_scale / 255.0;
  const Tensor roots =
      state.exp_avg_sq.view(-1).to(at::kFloat) * spread(unit, kCompandedGroup, count);
  exp_avg_sq.view(-1).copy_(roots * roots);
}

}  // namespace finetune::kernels::plain
