// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_core.h"
#include "kernels/dropout_mask.h"
#include "kernels/storage.h"

namespace finetune::kernels {
namespace {

constexpr int64_t kScoresAtOnce = 1 << 22;  // random numbers take ten times their memory

// Some samples: query, key, value [b, H, T, D] in the type that is computed in.
struct Samples {
  Tensor query, key, value;
  Tensor probabilities;  // [b, H, T, T]
  Tensor factors;        // like them; undefined without dropout
};

Tensor by_head(const Tensor& x, int64_t heads) {
  return x.to(compute_type(x)).unflatten(-1, {heads, -1}).transpose(1, 2);
}

Tensor from_heads(const Tensor& x) { return x.transpose(1, 2).flatten(2); }

double score_scale(const Tensor& query) {
  return 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
}

Samples make_samples(const Attention& inputs, int64_t first, int64_t count) {
  Samples samples = {.query = by_head(inputs.query.narrow(0, first, count), inputs.heads),
                     .key = by_head(inputs.key.narrow(0, first, count), inputs.heads),
                     .value = by_head(inputs.value.narrow(0, first, count), inputs.heads),
                     .probabilities = {},
                     .factors = {}};
  Tensor scores = samples.query.matmul(samples.key.transpose(-1, -2)) * score_scale(samples.query);
  if (inputs.mask.defined()) {
    const Tensor mask = inputs.mask.narrow(0, first, count);
    scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
    samples.probabilities = at::where(mask.any(-1, true), scores.softmax(-1), 0.0);
  } else {
    samples.probabilities = scores.softmax(-1);
  }
  if (inputs.dropout) {
    DropoutNumbers numbers = *inputs.dropout;
    numbers.first_place += static_cast<uint32_t>(first);
    samples.factors = dropout_mask(samples.probabilities, numbers);
  }
  return samples;
}

template <typename Function>
void by_samples(const Attention& inputs, const Function& function) {
  const int64_t batch = inputs.query.size(0);
  const int64_t tokens = inputs.query.size(1);
  const int64_t at_once =
      std::max<int64_t>(1, kScoresAtOnce / std::max<int64_t>(1, inputs.heads * tokens * tokens));
  for (int64_t first = 0; first < batch; first += at_once) {
    function(first, std::min(at_once, batch - first));
  }
}

Tensor dropped(const Samples& samples, const Tensor& x) {
  return samples.factors.defined() ? x * samples.factors : x;
}

}  // namespace

Tensor attention_reference(const Attention& inputs) {
  const Tensor output = at::empty_like(inputs.query);
  by_samples(inputs, [&](int64_t first, int64_t count) {
    const Samples samples = make_samples(inputs, first, count);
    output.narrow(0, first, count)
        .copy_(from_heads(dropped(samples, samples.probabilities).matmul(samples.value)));
  });
  return output;
}

void attention_backward_reference(const Attention& inputs, const Tensor& gradient) {
  by_samples(inputs, [&](int64_t first, int64_t count) {
    const Samples samples = make_samples(inputs, first, count);
    const Tensor& probabilities = samples.probabilities;
    const Tensor of_context = by_head(gradient.narrow(0, first, count), inputs.heads);
    const Tensor of_value = dropped(samples, probabilities).transpose(-1, -2).matmul(of_context);
    const Tensor of_probabilities =
        dropped(samples, of_context.matmul(samples.value.transpose(-1, -2)));
    const Tensor of_scores = probabilities *
                             (of_probabilities - (probabilities * of_probabilities).sum(-1, true)) *
                             score_scale(samples.query);
    const Tensor of_key = of_scores.transpose(-1, -2).matmul(samples.query);
    inputs.query.narrow(0, first, count).copy_(from_heads(of_scores.matmul(samples.key)));
    inputs.key.narrow(0, first, count).copy_(from_heads(of_key));
    inputs.value.narrow(0, first, count).copy_(from_heads(of_value));
  });
}

}  // namespace finetune::kernels
