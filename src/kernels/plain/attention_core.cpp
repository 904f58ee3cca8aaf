// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/interface/dropout_mask.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {
namespace {

// Some samples: query, key and value [b, H, T, D] in the compute type.
struct Samples {
  Tensor query, key, value;
  Tensor probabilities;  // [b, H, T, T]
  Tensor sinks;          // their probabilities, [b, H, T, 1]; undefined without sinks
  Tensor factors;        // same shape; undefined without dropout
  Tensor slopes;         // derivative of the soft-cap; undefined without it
};

Tensor by_head(const Tensor& x, int64_t heads) {
  return x.to(compute_type(x)).unflatten(-1, {heads, -1}).transpose(1, 2);
}

Tensor from_heads(const Tensor& x) { return x.transpose(1, 2).flatten(2); }

// Repeats each key head for its group of query heads, [b, kv, T, D] -> [b, H, T, D], and sums the
// gradients of a group back to its key head.
Tensor for_each_query_head(const Tensor& x, const Attention& inputs) {
  return x.repeat_interleave(inputs.heads / inputs.key_heads(), 1);
}
Tensor summed_by_key_head(const Tensor& x, const Attention& inputs) {
  return x.unflatten(1, {inputs.key_heads(), -1}).sum(2);
}

double scale_of(const Attention& inputs, const Samples& samples) {
  return inputs.rule.scale == 0.0 ? score_scale(samples.query) : inputs.rule.scale;
}

// [T, T], true where a query attends to a key; undefined if it always does.
Tensor seen_keys(const AttentionRule& rule, const Tensor& scores) {
  if (!rule.causal && rule.window == 0) return {};
  const Tensor positions = at::arange(scores.size(-1), scores.options().dtype(at::kLong));
  const Tensor distance = positions.unsqueeze(1) - positions;
  if (!rule.causal) return distance.abs().lt(rule.window);
  const Tensor seen = distance.ge(0);
  return rule.window == 0 ? seen : seen.logical_and(distance.lt(rule.window));
}

// P = softmax(scale Q K^T), after the soft-cap and with -infinity where the mask is false. A row
// without a visible key gets zeros.
Samples make_samples(const Attention& inputs, int64_t first, int64_t count) {
  Samples samples = {.query = by_head(inputs.query.narrow(0, first, count), inputs.heads),
                     .key = by_head(inputs.key.narrow(0, first, count), inputs.key_heads()),
                     .value = by_head(inputs.value.narrow(0, first, count), inputs.key_heads()),
                     .probabilities = {},
                     .sinks = {},
                     .factors = {},
                     .slopes = {}};
  if (inputs.heads != inputs.key_heads()) {
    samples.key = for_each_query_head(samples.key, inputs);
    samples.value = for_each_query_head(samples.value, inputs);
  }
  Tensor scores = samples.query.matmul(samples.key.transpose(-1, -2)) * scale_of(inputs, samples);
  if (inputs.rule.softcap != 0.0) {
    const Tensor bent = (scores / inputs.rule.softcap).tanh();
    samples.slopes = 1.0 - bent * bent;
    scores = bent * inputs.rule.softcap;
  }
  Tensor mask = seen_keys(inputs.rule, scores);
  if (inputs.mask.defined()) {
    const Tensor given = inputs.mask.narrow(0, first, count);
    mask = mask.defined() ? mask.logical_and(given) : given;
  }
  if (mask.defined()) {
    scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (inputs.sinks.defined()) {
    const Tensor sinks = inputs.sinks.to(scores.scalar_type()).view({1, -1, 1, 1});
    const Tensor all =
        at::cat({scores, sinks.expand({scores.size(0), -1, scores.size(2), 1})}, -1).softmax(-1);
    samples.probabilities = all.narrow(-1, 0, scores.size(-1));
    samples.sinks = all.narrow(-1, scores.size(-1), 1);
  } else if (mask.defined()) {
    samples.probabilities = at::where(mask.any(-1, true), scores.softmax(-1), 0.0);
  } else {
    samples.probabilities = scores.softmax(-1);
  }
  if (inputs.dropout) {
    DropoutNumbers numbers = *inputs.dropout;
    numbers.first_position += static_cast<uint32_t>(first);
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

// Some sequences of a layout, padded to samples of one length.
class PaddedSequences {
 public:
  PaddedSequences(const Attention& inputs, int64_t first, int64_t count) {
    const TokenLayout& layout = *inputs.layout;
    for (int64_t row = first; row < first + count; ++row) {
      length_ = std::max(length_, layout.length(row));
    }
    begin_ = layout.offsets[static_cast<size_t>(first)];
    const int64_t tokens = layout.offsets[static_cast<size_t>(first + count)] - begin_;
    cells_ = (layout.sequences.narrow(0, begin_, tokens) - first) * length_ +
             layout.positions.narrow(0, begin_, tokens);
    rows_ = count;
    Tensor mask = at::zeros({count * length_}, cells_.options().dtype(at::kBool));
    const Tensor allowed = inputs.mask.defined() ? inputs.mask.view({-1}).narrow(0, begin_, tokens)
                                                 : at::ones({tokens}, mask.options());
    mask.index_copy_(0, cells_, allowed);
    dense_ = {.query = pad(inputs.query),
              .key = pad(inputs.key),
              .value = pad(inputs.value),
              .heads = inputs.heads,
              .kv_heads = inputs.kv_heads,
              .rule = inputs.rule,
              .mask = mask.view({count, 1, 1, length_}),
              .dropout = inputs.dropout,
              .sinks = inputs.sinks,
              .of_sinks = {}};
    if (inputs.of_sinks.defined()) dense_.of_sinks = inputs.of_sinks.narrow(0, first, count);
    if (dense_.dropout) dense_.dropout->first_position += static_cast<uint32_t>(first);
  }

  [[nodiscard]] const Attention& dense() const { return dense_; }
  [[nodiscard]] Tensor pad(const Tensor& x) const {
    const Tensor padded = at::zeros({rows_ * length_, x.size(2)}, x.options());
    padded.index_copy_(0, cells_, x[0].narrow(0, begin_, cells_.numel()));
    return padded.view({rows_, length_, x.size(2)});
  }
  void unpad_into(const Tensor& padded, const Tensor& x) const {
    x[0].narrow(0, begin_, cells_.numel()).copy_(padded.flatten(0, 1).index_select(0, cells_));
  }

 private:
  int64_t begin_ = 0;
  int64_t length_ = 0;
  Tensor cells_;  // index of each token in the padded samples
  int64_t rows_ = 0;
  Attention dense_;
};

// Calls function(first, count) for groups of sequences, of the size that by_samples() would use for
// the longest.
template <typename Function>
void by_sequences(const Attention& inputs, const Function& function) {
  const TokenLayout& layout = *inputs.layout;
  for (int64_t first = 0; first < layout.rows();) {
    int64_t count = 0;
    int64_t longest = 0;
    while (first + count < layout.rows()) {
      longest = std::max(longest, layout.length(first + count));
      if (count > 0 && (count + 1) * inputs.heads * longest * longest > kScoresAtOnce) break;
      ++count;
    }
    function(PaddedSequences(inputs, first, count));
    first += count;
  }
}

Tensor dropped(const Samples& samples, const Tensor& x) {
  return samples.factors.defined() ? x * samples.factors : x;
}

}  // namespace

Tensor attention(const Attention& inputs) {
  const Tensor output = at::empty_like(inputs.query);
  if (inputs.layout != nullptr) {
    by_sequences(inputs, [&](const PaddedSequences& sequences) {
      sequences.unpad_into(plain::attention(sequences.dense()), output);
    });
    return output;
  }
  by_samples(inputs, [&](int64_t first, int64_t count) {
    const Samples samples = make_samples(inputs, first, count);
    output.narrow(0, first, count)
        .copy_(from_heads(dropped(samples, samples.probabilities).matmul(samples.value)));
  });
  return output;
}

void attention_backward(const Attention& inputs, const Tensor& gradient) {
  if (inputs.layout != nullptr) {
    by_sequences(inputs, [&](const PaddedSequences& sequences) {
      const Attention& dense = sequences.dense();
      plain::attention_backward(dense, sequences.pad(gradient));
      sequences.unpad_into(dense.query, inputs.query);
      sequences.unpad_into(dense.key, inputs.key);
      sequences.unpad_into(dense.value, inputs.value);
    });
    return;
  }
  // With context C = (P f) V and dropout factors f: dV = (P f)^T dC, dP = (dC V^T) f,
  // dS = P (dP - rowsum(P dP)) scale, dQ = dS K, dK = dS^T Q.
  by_samples(inputs, [&](int64_t first, int64_t count) {
    const Samples samples = make_samples(inputs, first, count);
    const Tensor& probabilities = samples.probabilities;
    const Tensor of_context = by_head(gradient.narrow(0, first, count), inputs.heads);
    const Tensor of_value = dropped(samples, probabilities).transpose(-1, -2).matmul(of_context);
    const Tensor of_probabilities =
        dropped(samples, of_context.matmul(samples.value.transpose(-1, -2)));
    const Tensor of_rows = (probabilities * of_probabilities).sum(-1, true);
    Tensor of_scores = probabilities * (of_probabilities - of_rows) * scale_of(inputs, samples);
    if (samples.sinks.defined()) {  // whose own gradient before the softmax is 0
      inputs.of_sinks.narrow(0, first, count).copy_((samples.sinks * -of_rows).sum({2, 3}));
    }
    if (samples.slopes.defined()) of_scores = of_scores * samples.slopes;
    const Tensor of_key = of_scores.transpose(-1, -2).matmul(samples.query);
    const auto of_key_heads = [&](const Tensor& x) {
      return from_heads(inputs.heads == inputs.key_heads() ? x : summed_by_key_head(x, inputs));
    };
    inputs.query.narrow(0, first, count).copy_(from_heads(of_scores.matmul(samples.key)));
    inputs.key.narrow(0, first, count).copy_(of_key_heads(of_key));
    inputs.value.narrow(0, first, count).copy_(of_key_heads(of_value));
  });
}

}  // namespace finetune::kernels::plain
