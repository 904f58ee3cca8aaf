// SPDX-License-Identifier: MIT
// AdamW of a list of parameters in one launch, which reads and writes every value of weight,
// gradient and state once. A warp updates 256 values, that is one block of the dynamic format or
// two groups of the companded format: lane l has values 4 l to 4 l + 3 of each group of 128. The
// arithmetic is bit for bit that of kernels/cpu/loops/adamw_blocks.cpp.
#include "kernels/cuda/device/lists.h"
#include "kernels/cuda/device/rounding.h"

namespace finetune::kernels::cuda {

// kVariant: 3 * state + weight.
constexpr int kStateOfTorch = 0;         // float32
constexpr int kStateOfBitsAndBytes = 1;  // float32
constexpr int kStateDynamic = 2;
constexpr int kStateCompanded = 3;
constexpr int kWeightFloat32 = 0;
constexpr int kWeightBFloat16 = 1;
constexpr int kWeightSplit = 2;

constexpr int kOfLane = 8;     // values per lane
constexpr int kOfWarp = 256;   // values per warp
constexpr int kOfGroup = 128;  // values per companded group
constexpr u32 kFirstBucket = (127 - 24) << 7;
constexpr u32 kLastBucket = 127 << 7;

// Returns the offset of a lane's value k from the first value of its warp.
__device__ inline i64 position_of(int k) {
  return static_cast<i64>(k / 4) * kOfGroup + 4 * (threadIdx.x % kWarp) + k % 4;
}

// Compares magnitudes as integers, so that NaN is the largest.
__device__ inline float largest_magnitude(const float* values, int begin, int end) {
  u32 largest = 0;
#pragma unroll
  for (int k = begin; k < end; ++k) {
    const u32 magnitude = bits_of(values[k]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const u32 other = __shfl_xor_sync(0xFFFFFFFFU, largest, lanes);
    largest = other > largest ? other : largest;
  }
  return float_of(largest);
}

// --- bitsandbytes' dynamic map
// ---------------------------------------------------------------------

__device__ inline u32 nearest_code(float scaled, const u32* buckets) {
  const u32 magnitude = bits_of(scaled) & 0x7FFFFFFFU;
  u32 bucket = magnitude >> 16;
  bucket = bucket < kFirstBucket ? kFirstBucket : bucket;
  bucket = bucket > kLastBucket ? kLastBucket : bucket;
  const u32 entry = buckets[bucket - kFirstBucket];
  return (entry & 0xFFU) + ((magnitude & 0xFFFFU) >= entry >> 8 ? 1U : 0U);
}

__device__ inline u8 code_of_signed(float value, float absmax, float inverse, const u32* buckets) {
  if (absmax == 0.0F) return 255;
  const u32 code = nearest_code(value * inverse, buckets);
  u32 mirrored = code < 128 ? 128 : code;
  mirrored = 254 - (mirrored > 254 ? 254 : mirrored);
  return static_cast<u8>(bits_of(value) >> 31 != 0 ? mirrored : code);
}

__device__ inline float block_scale(const float* values) {
  const float largest = largest_magnitude(values, 0, kOfLane);
  return largest < 1.17549435e-38F ? 0.0F : largest;
}

// --- one warp's values
// ------------------------------------------------------------------------------

struct WarpValues {
  const ListedUpdate& update;
  i64 begin;

  [[nodiscard]] __device__ bool has(int k) const { return begin + position_of(k) < update.count; }
  [[nodiscard]] __device__ i64 at(int k) const { return begin + position_of(k); }
};

// w = decay w + step_size m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon), as torch computes it.
__device__ inline void update_like_torch(const WarpValues& of, const float* gradient,
                                         float* weight) {
  float* const averages = static_cast<float*>(of.update.state1);
  float* const squares = static_cast<float*>(of.update.state2);
  const AdamWNumbers n = of.update.ours;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    if (!of.has(k)) continue;
    const i64 i = of.at(k);
    const float g = gradient[k];
    const float m = averages[i] + n.gradient1 * (g - averages[i]);
    const float v = n.beta2 * squares[i] + n.gradient2 * g * g;
    averages[i] = m;
    squares[i] = v;
    weight[k] = weight[k] * n.decay + n.step_size * m / (sqrtf(v) * n.correction + n.epsilon);
  }
}

__device__ inline void update_wide(const WarpValues& of, const float* gradient, float* weight) {
  // w = (w + step_size m / (sqrt(v) + epsilon)) decay, as bitsandbytes computes it in 32 bits.
  float* const state1 = static_cast<float*>(of.update.state1);
  float* const state2 = static_cast<float*>(of.update.state2);
  const BitsAndBytesNumbers n = of.update.theirs;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    if (!of.has(k)) continue;
    const i64 i = of.at(k);
    const float g = gradient[k];
    const float m = state1[i] * n.beta1 + n.gradient1 * g;
    const float v = state2[i] * n.beta2 + n.gradient2 * (g * g);
    state1[i] = m;
    state2[i] = v;
    weight[k] = (weight[k] + n.step_size * (m / (sqrtf(v) + n.epsilon))) * n.decay;
  }
}

// The same with codes: m = table[code] absmax. As in bitsandbytes, a non-finite gradient leaves the
// weight and zeroes the moments.
__device__ inline void update_dynamic(const WarpValues& of, const DynamicTables& tables,
                                      const float* gradient, float* weight) {
  u8* const state1 = static_cast<u8*>(of.update.state1);
  u8* const state2 = static_cast<u8*>(of.update.state2);
  const BitsAndBytesNumbers n = of.update.theirs;
  const i64 block = of.begin / kOfWarp;
  const float old1 = of.update.scales1[block];
  const float old2 = of.update.scales2[block];
  float first[kOfLane];
  float second[kOfLane];
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    first[k] = second[k] = 0.0F;
    if (!of.has(k)) continue;
    const float g = gradient[k];
    const bool is_finite = (bits_of(g) & 0x7F800000U) != 0x7F800000U;
    const float v = tables.values[1][state2[of.at(k)]] * old2 * n.beta2 + n.gradient2 * g * g;
    const float m = tables.values[0][state1[of.at(k)]] * old1 * n.beta1 + n.gradient1 * g;
    const float w = (weight[k] + n.step_size * (m / (sqrtf(v) + n.epsilon))) * n.decay;
    weight[k] = is_finite ? w : weight[k];
    first[k] = is_finite ? m : 0.0F;
    second[k] = is_finite ? v : 0.0F;
  }
  const float absmax1 = block_scale(first);
  const float absmax2 = block_scale(second);
  if (threadIdx.x % kWarp == 0) {
    of.update.scales1[block] = absmax1;
    of.update.scales2[block] = absmax2;
  }
  const float inverse1 = 1.0F / absmax1;
  const float inverse2 = 1.0F / absmax2;
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    if (!of.has(k)) continue;
    state1[of.at(k)] = code_of_signed(first[k], absmax1, inverse1, tables.buckets[0]);
    const u32 code = nearest_code(second[k] * inverse2, tables.buckets[1]);
    state2[of.at(k)] = static_cast<u8>(absmax2 == 0.0F ? 0 : code);
  }
}

// Rounds to the nearest integer, ties to even, and returns it in the lowest bits. Requires |x| <
// 2^22.
__device__ inline u32 nearest_integer(float x) { return bits_of(x + 12582912.0F); }

// Torch's update with the companded codes: m = q / (254 - |q|) scale1, sqrt(v) = code scale2 / 255.
__device__ inline void update_companded(const WarpValues& of, const float* gradient,
                                        float* weight) {
  signed char* const codes1 = static_cast<signed char*>(of.update.state1);
  u8* const codes2 = static_cast<u8*>(of.update.state2);
  const AdamWNumbers n = of.update.ours;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 first_of_group = of.begin + half * kOfGroup;
    if (first_of_group >= of.update.count) break;  // for the whole warp
    const i64 group = first_of_group / kOfGroup;
    const float old1 = of.update.scales1[group];
    const float unit2 = of.update.scales2[group] / 255.0F;
    float first[4];
    float roots[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int k = 4 * half + j;
      first[j] = roots[j] = 0.0F;
      if (!of.has(k)) continue;
      const float g = gradient[k];
      const auto q = static_cast<float>(codes1[of.at(k)]);
      const float old = q / (254.0F - fabsf(q)) * old1;
      const float root = static_cast<float>(codes2[of.at(k)]) * unit2;
      first[j] = old + n.gradient1 * (g - old);
      roots[j] = sqrtf(n.beta2 * (root * root) + n.gradient2 * g * g);
      weight[k] =
          weight[k] * n.decay + n.step_size * first[j] / (roots[j] * n.correction + n.epsilon);
    }
    const float scale1 = largest_magnitude(first, 0, 4);
    const float scale2 = largest_magnitude(roots, 0, 4);
    if (threadIdx.x % kWarp == 0) {
      of.update.scales1[group] = scale1;
      of.update.scales2[group] = scale2;
    }
    const float inverse2 = scale2 > 0.0F ? 255.0F / scale2 : 0.0F;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int k = 4 * half + j;
      if (!of.has(k)) continue;
      const float bound = scale1 + fabsf(first[j]);
      const float sum = bound < 1.17549435e-38F ? 1.17549435e-38F : bound;
      codes1[of.at(k)] = static_cast<signed char>(nearest_integer(254.0F * first[j] / sum) & 0xFFU);
      codes2[of.at(k)] = static_cast<u8>(nearest_integer(roots[j] * inverse2) & 0xFFU);
    }
  }
}

template <int kFormat>
__device__ inline void read_weights(const WarpValues& of, float* weight) {
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    weight[k] = 0.0F;
    if (!of.has(k)) continue;
    const i64 i = of.at(k);
    if (kFormat == kWeightFloat32) weight[k] = static_cast<const float*>(of.update.weight)[i];
    if (kFormat == kWeightBFloat16) {
      weight[k] = widen(static_cast<const bfloat16*>(of.update.weight)[i]);
    }
    if (kFormat == kWeightSplit) {
      weight[k] = join_value(static_cast<const u16*>(of.update.weight)[i], of.update.correction[i]);
    }
  }
}

template <int kFormat>
__device__ inline void write_weights(const WarpValues& of, const float* weight) {
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    u32 numbers[4];
    if (kFormat == kWeightBFloat16) {
      rounding_numbers(static_cast<u64>(of.update.first_value + of.at(4 * group)),
                       of.update.rounding_key, numbers);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int k = 4 * group + j;
      if (!of.has(k)) continue;
      const i64 i = of.at(k);
      if (kFormat == kWeightFloat32) static_cast<float*>(of.update.weight)[i] = weight[k];
      if (kFormat == kWeightBFloat16) {
        static_cast<u16*>(of.update.weight)[i] = round_with(weight[k], numbers[j]);
      }
      if (kFormat == kWeightSplit) {
        const SplitValue value = split_value(weight[k]);
        static_cast<u16*>(of.update.weight)[i] = value.weight;
        of.update.correction[i] = value.correction;
      }
    }
  }
}

template <class Gradient, int kVariant>
__device__ void adamw(const AdamWArguments& a) {
  constexpr int kState = kVariant / 3;
  constexpr int kFormat = kVariant % 3;
  const ListedUpdate& update = entry_of(a.updates, a.count, blockIdx.x);
  const i64 begin = (blockIdx.x - update.first_block) * kListedValues +
                    static_cast<i64>(threadIdx.x / kWarp) * kOfWarp;
  if (begin >= update.count) return;  // for the whole warp
  const WarpValues of{update, begin};
  float weight[kOfLane];
  float gradient[kOfLane];
  read_weights<kFormat>(of, weight);
#pragma unroll
  for (int k = 0; k < kOfLane; ++k) {
    gradient[k] =
        of.has(k) ? widen(static_cast<const Gradient*>(update.gradient)[of.at(k)]) * update.factor
                  : 0.0F;
  }
  if (kState == kStateOfTorch) update_like_torch(of, gradient, weight);
  if (kState == kStateOfBitsAndBytes) update_wide(of, gradient, weight);
  if (kState == kStateDynamic) update_dynamic(of, *a.tables, gradient, weight);
  if (kState == kStateCompanded) update_companded(of, gradient, weight);
  write_weights<kFormat>(of, weight);
}

}  // namespace finetune::kernels::cuda
