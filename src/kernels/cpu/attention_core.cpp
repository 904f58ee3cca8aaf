// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/attention_core.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/operations.h"

// B samples, T tokens, H heads, D head size.
namespace finetune::kernels::cpu {
namespace {

// A tile of scores fits a core's cache beside its gradient.
constexpr int64_t kScoresPerTile = 1 << 16;
constexpr int64_t kFewestRows = 32;

struct HeadTask {
  int64_t first;   // token of the batch
  int64_t tokens;  // of the sample
  int64_t sample;
  int64_t head;
  int64_t keys;                // those behind the last that may be attended to are left out
  std::vector<float> key_add;  // empty: all keys may be attended to
};

HeadTask make_task(const Attention& inputs, int64_t index) {
  const TokenLayout* layout = inputs.layout;
  const int64_t sample = index / inputs.heads;
  const int64_t tokens = layout == nullptr ? inputs.query.size(1) : layout->length(sample);
  HeadTask task = {
      .first = layout == nullptr ? sample * tokens : layout->offsets[static_cast<size_t>(sample)],
      .tokens = tokens,
      .sample = sample,
      .head = index % inputs.heads,
      .keys = tokens,
      .key_add = {}};
  if (!inputs.mask.defined()) return task;
  const bool* mask = inputs.mask.const_data_ptr<bool>() + task.first;
  while (task.keys > 1 && !mask[task.keys - 1]) --task.keys;
  if (std::all_of(mask, mask + task.keys, [](bool allowed) { return allowed; })) return task;
  task.key_add.assign(mask, mask + task.keys);
  for (float& add : task.key_add) {
    add = add == 0.0F ? -std::numeric_limits<float>::infinity() : 0.0F;
  }
  return task;
}

int64_t count_samples(const Attention& inputs) {
  return inputs.layout == nullptr ? inputs.query.size(0) : inputs.layout->rows();
}

int64_t longest_sample(const Attention& inputs) {
  return inputs.layout == nullptr ? inputs.query.size(1) : inputs.layout->longest;
}

// [T, D] of one head: a view.
Tensor slice(const Tensor& x, const Attention& inputs, const HeadTask& task) {
  const int64_t size = x.size(2) / inputs.heads;
  return x.view({-1, x.size(2)})
      .narrow(0, task.first, task.tokens)
      .narrow(1, task.head * size, size);
}

Tensor in_float(const Tensor& x) { return x.scalar_type() == at::kFloat ? x : x.to(at::kFloat); }

// The memory of one thread.
struct Scratch {
  int64_t rows;  // of a tile
  Tensor scores, gradient, row, query_gradient, key_gradient, value_gradient;

  Scratch(const Attention& inputs, bool backward) {
    const int64_t tokens = longest_sample(inputs);
    rows = std::min(tokens, std::max(kFewestRows, kScoresPerTile / tokens));
    const auto options = inputs.query.options().dtype(at::kFloat);
    const int64_t size = inputs.query.size(2) / inputs.heads;
    scores = at::empty({rows * tokens}, options);
    query_gradient = at::empty({rows, size}, options);  // or the context
    row = at::empty({2 * tokens + kDropoutNumbers}, options);
    if (!backward) return;
    gradient = at::empty({rows * tokens}, options);
    key_gradient = at::empty({tokens, size}, options);
    value_gradient = at::empty({tokens, size}, options);
  }
  [[nodiscard]] static Tensor tile(const Tensor& memory, int64_t rows, int64_t keys) {
    return memory.narrow(0, 0, rows * keys).view({rows, keys});
  }
};

ScoreTile make_tile(const Attention& inputs, const HeadTask& task, const Tensor& scores,
                    const Scratch& scratch, int64_t first_query) {
  return {.scores = scores.mutable_data_ptr<float>(),
          .gradient = nullptr,
          .key_add = task.key_add.empty() ? nullptr : task.key_add.data(),
          .rows = scores.size(0),
          .keys = task.keys,
          .dropout = inputs.dropout,
          .sample = task.sample,
          .head = task.head,
          .first_query = first_query,
          .scratch = scratch.row.mutable_data_ptr<float>()};
}

double score_scale(const Attention& inputs) {
  return 1.0 / std::sqrt(static_cast<double>(inputs.query.size(2) / inputs.heads));
}

// target <- target * beta + a b * alpha
void multiply(const Tensor& target, const Tensor& a, const Tensor& b, double beta = 0.0,
              double alpha = 1.0) {
  target.addmm_(a, b, beta, alpha);
}

void forward_head(const Attention& inputs, const HeadTask& task, const Tensor& output,
                  const Scratch& scratch) {
  const Tensor query = slice(inputs.query, inputs, task);
  const Tensor key = in_float(slice(inputs.key, inputs, task).narrow(0, 0, task.keys));
  const Tensor value = in_float(slice(inputs.value, inputs, task).narrow(0, 0, task.keys));
  const Tensor context = slice(output, inputs, task);
  for (int64_t first = 0; first < query.size(0); first += scratch.rows) {
    const int64_t rows = std::min(scratch.rows, query.size(0) - first);
    const Tensor scores = Scratch::tile(scratch.scores, rows, task.keys);
    multiply(scores, in_float(query.narrow(0, first, rows)), key.t(), 0.0, score_scale(inputs));
    softmax_dropout(make_tile(inputs, task, scores, scratch, first));
    const Tensor result = scratch.query_gradient.narrow(0, 0, rows);
    multiply(result, scores, value);
    context.narrow(0, first, rows).copy_(result);
  }
}

void backward_head(const Attention& inputs, const HeadTask& task, const Tensor& gradient,
                   const Scratch& scratch) {
  const Tensor query = slice(inputs.query, inputs, task);
  const Tensor all_keys = slice(inputs.key, inputs, task);
  const Tensor all_values = slice(inputs.value, inputs, task);
  const Tensor key = in_float(all_keys.narrow(0, 0, task.keys));
  const Tensor value = in_float(all_values.narrow(0, 0, task.keys));
  const Tensor of_context = slice(gradient, inputs, task);
  const Tensor of_key = scratch.key_gradient.narrow(0, 0, task.keys);
  const Tensor of_value = scratch.value_gradient.narrow(0, 0, task.keys);
  const double scale = score_scale(inputs);
  for (int64_t first = 0; first < query.size(0); first += scratch.rows) {
    const int64_t rows = std::min(scratch.rows, query.size(0) - first);
    const double keep = first == 0 ? 0.0 : 1.0;
    const Tensor of_rows = in_float(of_context.narrow(0, first, rows));
    const Tensor query_rows = in_float(query.narrow(0, first, rows));
    const Tensor scores = Scratch::tile(scratch.scores, rows, task.keys);
    const Tensor of_scores = Scratch::tile(scratch.gradient, rows, task.keys);
    multiply(scores, query_rows, key.t(), 0.0, scale);
    multiply(of_scores, of_rows, value.t());
    ScoreTile tile = make_tile(inputs, task, scores, scratch, first);
    tile.gradient = of_scores.mutable_data_ptr<float>();
    softmax_dropout_backward(tile);
    multiply(of_value, scores.t(), of_rows, keep);
    multiply(of_key, of_scores.t(), query_rows, keep, scale);
    const Tensor of_query = scratch.query_gradient.narrow(0, 0, rows);
    multiply(of_query, of_scores, key, 0.0, scale);
    query.narrow(0, first, rows).copy_(of_query);
  }
  all_keys.zero_().narrow(0, 0, task.keys).copy_(of_key);
  all_values.zero_().narrow(0, 0, task.keys).copy_(of_value);
}

template <typename Function>
void for_each_head(const Attention& inputs, bool backward, const Function& function) {
  at::parallel_for(0, count_samples(inputs) * inputs.heads, 1, [&](int64_t begin, int64_t end) {
    // Threads begin with autograd's dispatch, which costs more than a small product.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Scratch scratch(inputs, backward);
    for (int64_t index = begin; index < end; ++index) function(make_task(inputs, index), scratch);
  });
}

}  // namespace

Tensor attention(const Attention& inputs) {
  const Tensor output = at::empty_like(inputs.query);
  for_each_head(inputs, false, [&](const HeadTask& task, const Scratch& scratch) {
    forward_head(inputs, task, output, scratch);
  });
  return output;
}

void attention_backward(const Attention& inputs, const Tensor& gradient) {
  for_each_head(inputs, true, [&](const HeadTask& task, const Scratch& scratch) {
    backward_head(inputs, task, gradient, scratch);
  });
}

}  // namespace finetune::kernels::cpu
