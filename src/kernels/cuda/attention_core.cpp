// SPDX-License-Identifier: MIT
// Attention as cuBLAS products around one kernel for the rows of scores. Query heads that share a
// key head are rows of one product, so that keys are not copied for each head.
#include "kernels/interface/attention_core.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

// Bytes of scores that are computed at a time. The forward pass allocates one such tensor, the
// backward pass two.
constexpr int64_t kScoreBytes = int64_t{32} << 20;

enum Direction : int { kToHeads, kToTokens };  // variants of device/heads.cu

// Samples that are computed together.
struct SampleRange {
  const Attention& inputs;
  int64_t first = 0;
  int64_t count = 0;
  int64_t length = 0;       // tokens of the longest
  int64_t first_token = 0;  // counted over all samples
  int64_t tokens = 0;
  Tensor all_starts = {};  // of all samples; undefined without a layout

  [[nodiscard]] Tensor tokens_of(const Tensor& x) const {
    return x.view({-1, x.size(-1)}).narrow(0, first_token, tokens);
  }
  [[nodiscard]] Tensor starts() const {
    return all_starts.defined() ? all_starts.narrow(0, first, count + 1) : Tensor();
  }
  [[nodiscard]] Tensor mask() const {
    return inputs.mask.defined() ? inputs.mask.view({-1}).narrow(0, first_token, tokens) : Tensor();
  }
  [[nodiscard]] std::optional<DropoutNumbers> dropout() const {
    std::optional<DropoutNumbers> numbers = inputs.dropout;
    if (numbers) numbers->first_position += static_cast<uint32_t>(first);
    return numbers;
  }
  [[nodiscard]] double scale() const { return inputs.scale(); }
  // Returns [count * key heads, query heads of each * length, D or length].
  [[nodiscard]] Tensor empty_rows(int64_t columns) const {
    const int64_t kv = inputs.key_heads();
    return at::empty({count * kv, inputs.heads / kv * length, columns}, inputs.query.options());
  }
  [[nodiscard]] Tensor empty_heads(int64_t heads) const {
    const int64_t kv = inputs.key_heads();
    return at::empty({count * kv, heads / kv * length, inputs.head_size()}, inputs.query.options());
  }
};

int64_t length_of(const Attention& inputs, int64_t sample) {
  return inputs.layout == nullptr ? inputs.query.size(1) : inputs.layout->length(sample);
}

// Uploads the starts of sequences here if the layout was made for another device's kernels.
Tensor starts_of(const Attention& inputs) {
  if (inputs.layout == nullptr || inputs.layout->starts.defined()) {
    return inputs.layout == nullptr ? Tensor() : inputs.layout->starts;
  }
  return on_device(inputs.layout->offsets, inputs.query).view(at::kLong);
}

template <typename Function>
void for_sample_ranges(const Attention& inputs, const Function& function) {
  const Tensor starts = starts_of(inputs);
  const int64_t samples = inputs.layout == nullptr ? inputs.query.size(0) : inputs.layout->rows();
  const int64_t most = kScoreBytes / static_cast<int64_t>(inputs.query.element_size());
  for (int64_t first = 0; first < samples;) {
    SampleRange range{.inputs = inputs, .first = first, .all_starts = starts};
    range.first_token = inputs.layout == nullptr
                            ? first * inputs.query.size(1)
                            : inputs.layout->offsets[static_cast<size_t>(first)];
    while (first < samples) {
      const int64_t length = std::max(range.length, length_of(inputs, first));
      if (range.count > 0 && (range.count + 1) * inputs.heads * length * length > most) break;
      range.length = length;
      range.tokens += length_of(inputs, first);
      ++range.count;
      ++first;
    }
    function(range);
  }
}

struct TokensAndHeads {
  Tensor tokens;
  Tensor by_head;
  int64_t heads;
};

void move_heads(const SampleRange& range, Direction direction,
                std::initializer_list<TokensAndHeads> parts) {
  Launch launch(range.inputs.query);
  const int64_t size = range.inputs.head_size();
  HeadsArguments arguments = {.starts = launch.reads<i64>(range.starts()),
                              .first_token = range.first_token,
                              .tokens = static_cast<int>(range.length),
                              .length = static_cast<int>(range.length),
                              .size = static_cast<int>(size),
                              .is_aligned = 1};
  int part = 0;
  int64_t widest = 0;
  for (const TokensAndHeads& one : parts) {
    const Tensor tokens = range.tokens_of(one.tokens);
    const bool splits = direction == kToHeads;
    const Tensor& from = splits ? tokens : one.by_head;
    const Tensor& to = splits ? one.by_head : tokens;
    void* const source = const_cast<void*>(launch.reads(from));
    void* const target = launch.writes(to);
    arguments.parts[part++] = {.tokens = splits ? source : target,
                               .by_head = splits ? target : source,
                               .heads = static_cast<int>(one.heads)};
    arguments.is_aligned = arguments.is_aligned != 0 && is_aligned(size, {tokens, one.by_head});
    widest = std::max(widest, tokens.size(1));
  }
  launch.run<kernel::heads>(
      value_type_of(range.inputs.query), direction,
      {.x = range.count * range.length, .y = part, .threads = threads_for(widest)}, arguments);
}

// How the rows of scores are divided among blocks (device/attention_rows.cu).
struct ScoreRows {
  int variant = 0;
  Grid grid;

  ScoreRows(int64_t rows, int64_t length) {
    constexpr int64_t kRowsOfBlock = kThreads / kWarp;
    if (length <= int64_t{32} * kWarp) {
      variant = variant_for(length, kWarp);
      grid.x = (rows + kRowsOfBlock - 1) / kRowsOfBlock;
    } else {
      variant = 3 + variant_for(length, kThreads);
      grid.x = rows;
    }
  }
};

void softmax_rows(const SampleRange& range, const Tensor& scores, const Tensor& probabilities,
                  const Tensor& dropped) {
  const Attention& inputs = range.inputs;
  Launch launch(scores);
  const int64_t rows = range.count * inputs.heads * range.length;
  const AttentionRowsArguments arguments = {
      .scores = launch.reads(scores),
      .probabilities = launch.writes(probabilities),
      .dropped = launch.writes(dropped),
      .mask = launch.reads<u8>(range.mask()),
      .starts = launch.reads<i64>(range.starts()),
      .first_token = range.first_token,
      .rows = rows,
      .length = static_cast<int>(range.length),
      .heads = static_cast<int>(inputs.heads),
      .is_causal = inputs.rule.causal,
      .window = static_cast<int>(inputs.rule.window),
      .dropout = dropout_arguments(range.dropout(), range.length, nullptr, launch)};
  const ScoreRows shared(rows, range.length);
  launch.run<kernel::attention_rows>(value_type_of(scores), shared.variant, shared.grid, arguments);
}

void softmax_rows_backward(const SampleRange& range, const Tensor& probabilities,
                           const Tensor& gradient) {
  Launch launch(probabilities);
  const int64_t rows = range.count * range.inputs.heads * range.length;
  const AttentionBackwardArguments arguments = {
      .probabilities = launch.reads(probabilities),
      .gradient = launch.changes(gradient),
      .rows = rows,
      .length = static_cast<int>(range.length),
      .heads = static_cast<int>(range.inputs.heads),
      .dropout = dropout_arguments(range.dropout(), range.length, nullptr, launch)};
  const ScoreRows shared(rows, range.length);
  launch.run<kernel::attention_rows_backward>(value_type_of(gradient), shared.variant, shared.grid,
                                              arguments);
}

bool has_rows_kernel(const Attention& inputs) {
  return inputs.rule.softcap == 0.0 && !inputs.sinks.defined() &&
         inputs.longest() <= kLongestAttention && inputs.has_one_type();
}

// target = factor * a b, ignoring the old contents.
void multiply_into(const Tensor& target, const Tensor& a, const Tensor& b, double factor) {
  target.baddbmm_(a, b, /*beta=*/0, /*alpha=*/factor);
}

Tensor transposed(const Tensor& x) { return x.transpose(1, 2); }

}  // namespace

Tensor attention(const Attention& inputs) {
  if (!has_rows_kernel(inputs)) return plain::attention(inputs);
  const Tensor output = at::empty_like(inputs.query);
  const int64_t kv = inputs.key_heads();
  for_sample_ranges(inputs, [&](const SampleRange& range) {
    const Tensor query = range.empty_heads(inputs.heads);
    const Tensor key = range.empty_heads(kv);
    const Tensor value = range.empty_heads(kv);
    move_heads(
        range, kToHeads,
        {{inputs.query, query, inputs.heads}, {inputs.key, key, kv}, {inputs.value, value, kv}});
    const Tensor scores = range.empty_rows(range.length);
    multiply_into(scores, query, transposed(key), range.scale());
    softmax_rows(range, scores, {}, scores);
    multiply_into(query, scores, value, 1.0);
    move_heads(range, kToTokens, {{output, query, inputs.heads}});
  });
  return output;
}

void attention_backward(const Attention& inputs, const Tensor& gradient) {
  if (!has_rows_kernel(inputs) || gradient.scalar_type() != inputs.query.scalar_type()) {
    plain::attention_backward(inputs, gradient);
    return;
  }
  const int64_t kv = inputs.key_heads();
  for_sample_ranges(inputs, [&](const SampleRange& range) {
    const Tensor query = range.empty_heads(inputs.heads);
    const Tensor key = range.empty_heads(kv);
    const Tensor value = range.empty_heads(kv);
    const Tensor of_context = range.empty_heads(inputs.heads);
    move_heads(range, kToHeads,
               {{inputs.query, query, inputs.heads},
                {inputs.key, key, kv},
                {inputs.value, value, kv},
                {gradient, of_context, inputs.heads}});
    const Tensor probabilities = range.empty_rows(range.length);
    multiply_into(probabilities, query, transposed(key), range.scale());
    const Tensor dropped = at::empty_like(probabilities);
    softmax_rows(range, probabilities, probabilities, inputs.dropout ? dropped : Tensor());
    const Tensor of_value =
        at::bmm(transposed(inputs.dropout ? dropped : probabilities), of_context);
    // The gradient of the dropped probabilities reuses their memory.
    multiply_into(dropped, of_context, transposed(value), 1.0);
    softmax_rows_backward(range, probabilities, dropped);
    multiply_into(value, transposed(dropped), query, range.scale());  // of the keys
    multiply_into(query, dropped, key, range.scale());                // of the queries
    move_heads(range, kToTokens,
               {{inputs.query, query, inputs.heads},
                {inputs.key, value, kv},
                {inputs.value, of_value, kv}});
  });
}

}  // namespace finetune::kernels::cuda
