// SPDX-License-Identifier: MIT
#include "model/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "finetune/base/error.h"
#include "finetune/kernels/kernels_in_use.h"

namespace finetune {
namespace {

bool has_fixed_growth(const RopeParameters& rope) {
  return rope.rope_type == "dynamic" && rope.alpha.value_or(0.0) != 0.0;
}

// Angular frequencies of a head's pairs of values, and a factor.
struct Frequencies {
  std::vector<float> values;  // [R / 2]
  double factor = 1.0;        // of cosines and sines (attention scaling)
};

struct RopeShape {
  const RopeParameters& rope;
  int64_t head_dim;
  int64_t rotated;
  double max_positions;  // max_position_embeddings

  [[nodiscard]] double original() const {
    return static_cast<double>(*rope.original_max_position_embeddings);
  }
};

// Returns 1 / base^(2i / size) for i < count, in float32 as torch computes it.
std::vector<float> plain_frequencies(double base, int64_t count, int64_t size) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(size);
    values.push_back(1.0F / std::pow(static_cast<float>(base), exponent));
  }
  return values;
}

std::vector<float> divided(std::vector<float> values, double factor) {
  for (float& value : values) value /= static_cast<float>(factor);
  return values;
}

Frequencies proportional(const RopeShape& shape) {
  const double share = shape.rope.partial_rotary_factor.value_or(1.0);
  const auto angles =
      static_cast<int64_t>(std::floor(share * static_cast<double>(shape.head_dim) / 2.0));
  std::vector<float> values = plain_frequencies(shape.rope.rope_theta, angles, shape.head_dim);
  values.resize(static_cast<size_t>(shape.head_dim / 2), 0.0F);
  return {divided(std::move(values), shape.rope.factor.value_or(1.0))};
}

// Dynamic NTK scaling: for sequences longer than max_position_embeddings the base grows with the
// length.
Frequencies dynamic(const RopeShape& shape, int64_t length) {
  const double longest = std::max(static_cast<double>(length), shape.max_positions);
  const double factor = *shape.rope.factor;
  const auto size = static_cast<double>(shape.rotated);
  const double growth = factor * longest / shape.max_positions - (factor - 1.0);
  const double base = shape.rope.rope_theta * std::pow(growth, size / (size - 2.0));
  return {plain_frequencies(base, shape.rotated / 2, shape.rotated)};
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// YaRN (Peng et al. 2023): divides low frequencies by `factor`, keeps high frequencies and
// interpolates between them with a linear ramp.
Frequencies yarn(const RopeShape& shape) {
  const RopeParameters& rope = shape.rope;
  const double factor = rope.factor.value_or(shape.max_positions / shape.original());
  double scale = yarn_scale(factor, 1.0);
  if (rope.mscale.value_or(0.0) != 0.0 && rope.mscale_all_dim.value_or(0.0) != 0.0) {
    scale = yarn_scale(factor, *rope.mscale) / yarn_scale(factor, *rope.mscale_all_dim);
  }
  const auto size = static_cast<double>(shape.rotated);
  // The dimension whose angle makes `turns` full turns over the positions of the pretraining.
  const auto dimension_of = [&](double turns) {
    return size * std::log(shape.original() / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.rope_theta));
  };
  const auto given = [](const std::optional<double>& value, double fallback) {
    return value.value_or(0.0) == 0.0 ? fallback : *value;
  };
  double low = dimension_of(given(rope.beta_fast, 32.0));
  double high = dimension_of(given(rope.beta_slow, 1.0));
  if (rope.truncate.value_or(true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1.0);
  if (low == high) high += 0.001;
  Frequencies result = {plain_frequencies(rope.rope_theta, shape.rotated / 2, shape.rotated),
                        rope.attention_factor.value_or(scale)};
  for (size_t i = 0; i < result.values.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double own = result.values[i];
    result.values[i] = static_cast<float>(own / factor * ramp + own * (1.0 - ramp));
  }
  return result;
}

// LongRoPE (Ding et al. 2024): each frequency is divided by its factor of the short or of the long
// list.
Frequencies longrope(const RopeShape& shape, int64_t length) {
  const RopeParameters& rope = shape.rope;
  const double factor = rope.factor.value_or(shape.max_positions / shape.original());
  const double scale =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(shape.original()));
  Frequencies result = {plain_frequencies(rope.rope_theta, shape.rotated / 2, shape.rotated),
                        rope.attention_factor.value_or(scale)};
  const bool is_long = static_cast<double>(length) > shape.original();
  const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
  for (size_t i = 0; i < result.values.size(); ++i) {
    result.values[i] /= static_cast<float>(factors[i]);
  }
  return result;
}

// Llama 3 (Grattafiori et al. 2024): divides frequencies with long wavelengths by `factor`, keeps
// those with short ones and interpolates between.
Frequencies llama3(const RopeShape& shape) {
  const RopeParameters& rope = shape.rope;
  const double longest = shape.original() / *rope.low_freq_factor;  // wavelengths
  const double shortest = shape.original() / *rope.high_freq_factor;
  Frequencies result = {plain_frequencies(rope.rope_theta, shape.rotated / 2, shape.rotated)};
  for (float& value : result.values) {
    const double wavelength = 2.0 * std::numbers::pi / value;
    if (wavelength < shortest) continue;
    const double slow = value / *rope.factor;
    if (wavelength > longest) {
      value = static_cast<float>(slow);
      continue;
    }
    const double smooth = (shape.original() / wavelength - *rope.low_freq_factor) /
                          (*rope.high_freq_factor - *rope.low_freq_factor);
    value = static_cast<float>((1.0 - smooth) * slow + smooth * value);
  }
  return result;
}

// The same with a fixed growth (Hunyuan's checkpoints).
Frequencies ntk_alpha(const RopeShape& shape) {
  const auto size = static_cast<double>(shape.head_dim);
  const double base = shape.rope.rope_theta * std::pow(*shape.rope.alpha, size / (size - 2.0));
  return {plain_frequencies(base, shape.head_dim / 2, shape.head_dim)};
}

Frequencies frequencies_of(const RopeShape& shape, int64_t length) {
  const std::string& type = shape.rope.rope_type;
  if (has_fixed_growth(shape.rope)) return ntk_alpha(shape);
  if (type == "dynamic") return dynamic(shape, length);
  if (type == "llama3") return llama3(shape);
  if (type == "longrope") return longrope(shape, length);
  if (type == "proportional") return proportional(shape);
  if (type == "yarn") return yarn(shape);
  std::vector<float> values =
      plain_frequencies(shape.rope.rope_theta, shape.rotated / 2, shape.rotated);
  if (type == "linear") values = divided(std::move(values), *shape.rope.factor);
  return {std::move(values)};
}

}  // namespace

const std::vector<std::string>& rope_types() {
  static const std::vector<std::string> kTypes = {"default",  "dynamic",      "linear", "llama3",
                                                  "longrope", "proportional", "yarn"};
  return kTypes;
}

int64_t rotated_size(const RopeParameters& rope, int64_t head_dim) {
  if (rope.rope_type == "proportional") return head_dim;
  return static_cast<int64_t>(static_cast<double>(head_dim) *
                              rope.partial_rotary_factor.value_or(1.0));
}

nn::Rotation rope_rotation(const RopeParameters& rope, int64_t head_dim,
                           int64_t max_position_embeddings, const Tensor& positions,
                           const SequenceLengths& lengths) {
  const RopeShape shape = {.rope = rope,
                           .head_dim = head_dim,
                           .rotated = rotated_size(rope, head_dim),
                           .max_positions = static_cast<double>(max_position_embeddings)};
  const auto rotation_of = [&](const Tensor& of_positions, int64_t length) {
    const Frequencies frequencies = frequencies_of(shape, length);
    const Tensor values = at::tensor(frequencies.values, at::TensorOptions(at::kFloat));
    return nn::make_rotation(of_positions, uploaded(values, positions.device()),
                             frequencies.factor);
  };
  const bool depends_on_length =
      (rope.rope_type == "dynamic" && !has_fixed_growth(rope)) || rope.rope_type == "longrope";
  if (!depends_on_length) return rotation_of(positions, 0);
  std::vector<Tensor> cosines;
  std::vector<Tensor> sines;
  int64_t first = 0;
  for (size_t i = 0; i < lengths.tokens.size(); ++i) {
    const int64_t length = lengths.tokens[i];
    const int64_t whole = lengths.whole.empty() ? length : lengths.whole[i];
    const nn::Rotation own =
        rotation_of(positions.narrow(0, first, length), lengths.before + whole);
    cosines.push_back(own.cos);
    sines.push_back(own.sin);
    first += length;
  }
  return {.cos = at::cat(cosines), .sin = at::cat(sines)};
}

Tensor llama_4_query_scale(const RopeParameters& rope, const Tensor& positions, int64_t longest) {
  const int64_t original = *rope.original_max_position_embeddings;
  if (longest <= original) return {};
  const Tensor times = (positions.to(at::kFloat) / static_cast<double>(original)).floor();
  return (times + 1.0).log() * *rope.llama_4_scaling_beta + 1.0;
}

}  // namespace finetune
