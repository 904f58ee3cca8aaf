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

// Sizes of a tile, so that its scores and their gradient fit a core's cache.
constexpr int64_t kScoresPerTile = 1 << 16;
constexpr int64_t kFewestRows = 32;
// Fewer for causal attention: half of a tile's last keys are computed although they are masked.
constexpr int64_t kMostCausalRows = 64;

// One key head of one sample and the query heads that it serves.
struct HeadTask {
  int64_t first;   // first token, counted in the batch
  int64_t tokens;  // number of tokens of the sample
  int64_t sample;
  int64_t key_head;
  int64_t keys;                // number of keys up to the last unmasked one
  std::vector<float> key_add;  // 0 or -infinity; empty: no key is masked
};

HeadTask make_task(const Attention& inputs, int64_t index) {
  const TokenLayout* layout = inputs.layout;
  const int64_t sample = index / inputs.key_heads();
  const int64_t tokens = layout == nullptr ? inputs.query.size(1) : layout->length(sample);
  HeadTask task = {
      .first = layout == nullptr ? sample * tokens : layout->offsets[static_cast<size_t>(sample)],
      .tokens = tokens,
      .sample = sample,
      .key_head = index % inputs.key_heads(),
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

// Returns a view [T, D] of one head.
Tensor slice(const Tensor& x, const Attention& inputs, const HeadTask& task, int64_t head) {
  const int64_t size = inputs.head_size();
  return x.view({-1, x.size(2)}).narrow(0, task.first, task.tokens).narrow(1, head * size, size);
}

// The keys [first, first + count) that at least one query of a tile attends to.
struct KeyRange {
  int64_t first, count;
};

KeyRange keys_of_rows(const Attention& inputs, const HeadTask& task, int64_t first_row,
                      int64_t rows) {
  const int64_t window = inputs.rule.window;
  if (!inputs.rule.causal && window == 0) return {0, task.keys};
  const int64_t after = inputs.rule.causal ? 0 : window - 1;
  const int64_t end = std::min(task.keys, first_row + rows + after);
  const int64_t begin = window == 0 ? 0 : std::max<int64_t>(0, first_row - window + 1);
  return {begin, std::max<int64_t>(0, end - begin)};
}

Tensor in_float(const Tensor& x) { return x.scalar_type() == at::kFloat ? x : x.to(at::kFloat); }

// The scratch memory of one thread.
struct Scratch {
  int64_t rows;  // rows of a tile
  Tensor scores, gradient, row, query_gradient, key_gradient, value_gradient;

  Scratch(const Attention& inputs, bool backward) {
    const int64_t tokens = longest_sample(inputs);
    rows = std::min(tokens, std::max(kFewestRows, kScoresPerTile / tokens));
    const int64_t window = inputs.rule.window;
    if (inputs.rule.causal || window != 0) rows = std::min(rows, kMostCausalRows);
    const int64_t seen = inputs.rule.causal ? window : 2 * window;
    const int64_t keys = window == 0 ? tokens : std::min(tokens, seen + rows);
    const auto options = inputs.query.options().dtype(at::kFloat);
    const int64_t size = inputs.head_size();
    scores = at::empty({rows * keys}, options);
    query_gradient = at::empty({rows, size}, options);  // in the forward pass the context
    row = at::empty({attention_scratch(tokens)}, options);
    if (!backward) return;
    gradient = at::empty({rows * keys}, options);
    key_gradient = at::empty({tokens, size}, options);
    value_gradient = at::empty({tokens, size}, options);
  }
  [[nodiscard]] static Tensor tile(const Tensor& memory, int64_t rows, int64_t keys) {
    return memory.narrow(0, 0, rows * keys).view({rows, keys});
  }
};

// Some rows of one head's queries, from the sample's row `first_query` on.
struct TilePlace {
  int64_t head, first_query;
  KeyRange keys;
};

ScoreTile make_tile(const Attention& inputs, const HeadTask& task, const Tensor& scores,
                    const Scratch& scratch, const TilePlace& place) {
  const float* key_add = task.key_add.empty() ? nullptr : task.key_add.data() + place.keys.first;
  return {.scores = scores.mutable_data_ptr<float>(),
          .gradient = nullptr,
          .key_add = key_add,
          .rows = scores.size(0),
          .keys = place.keys.count,
          .dropout = inputs.dropout,
          .sample = task.sample,
          .head = place.head,
          .first_query = place.first_query,
          .first_key = place.keys.first,
          .causal = inputs.rule.causal,
          .window = inputs.rule.window,
          .softcap = static_cast<float>(inputs.rule.softcap),
          .scratch = scratch.row.mutable_data_ptr<float>()};
}

double score_scale(const Attention& inputs) {
  if (inputs.rule.scale != 0.0) return inputs.rule.scale;
  return 1.0 / std::sqrt(static_cast<double>(inputs.head_size()));
}

// target = beta * target + alpha * a b
void multiply(const Tensor& target, const Tensor& a, const Tensor& b, double beta = 0.0,
              double alpha = 1.0) {
  target.addmm_(a, b, beta, alpha);
}

// Keys and values in float32 up to the last unmasked one, shared by the heads of a task.
struct KeysAndValues {
  Tensor key, value;

  KeysAndValues(const Attention& inputs, const HeadTask& task)
      : key(in_float(slice(inputs.key, inputs, task, task.key_head).narrow(0, 0, task.keys))),
        value(in_float(slice(inputs.value, inputs, task, task.key_head).narrow(0, 0, task.keys))) {}
};

// Calls `function` for each query head and each of its tiles.
template <typename Function>
void for_each_tile(const Attention& inputs, const HeadTask& task, const Scratch& scratch,
                   const Function& function) {
  const int64_t group = inputs.heads / inputs.key_heads();
  for (int64_t head = task.key_head * group; head < (task.key_head + 1) * group; ++head) {
    for (int64_t first = 0; first < task.tokens; first += scratch.rows) {
      const int64_t rows = std::min(scratch.rows, task.tokens - first);
      const TilePlace place = {
          .head = head, .first_query = first, .keys = keys_of_rows(inputs, task, first, rows)};
      function(place, rows);
    }
  }
}

// For each tile: S = scale Q K^T, then context = Dropout(softmax(S)) V.
void forward_heads(const Attention& inputs, const HeadTask& task, const Tensor& output,
                   const Scratch& scratch) {
  const KeysAndValues all(inputs, task);
  for_each_tile(inputs, task, scratch, [&](const TilePlace& place, int64_t rows) {
    const auto rows_of = [&](const Tensor& x) {
      return slice(x, inputs, task, place.head).narrow(0, place.first_query, rows);
    };
    const Tensor context = rows_of(output);
    if (place.keys.count == 0) {
      context.zero_();
      return;
    }
    const Tensor key = all.key.narrow(0, place.keys.first, place.keys.count);
    const Tensor value = all.value.narrow(0, place.keys.first, place.keys.count);
    const Tensor scores = Scratch::tile(scratch.scores, rows, place.keys.count);
    multiply(scores, in_float(rows_of(inputs.query)), key.t(), 0.0, score_scale(inputs));
    softmax_dropout(make_tile(inputs, task, scores, scratch, place));
    const Tensor result = scratch.query_gradient.narrow(0, 0, rows);
    multiply(result, scores, value);
    context.copy_(result);
  });
}

// Computes the probabilities of each tile again. With P after dropout and dP = dC V^T:
// dV += P^T dC, dQ = scale dS K, dK += scale dS^T Q. The gradients overwrite the inputs.
void backward_heads(const Attention& inputs, const HeadTask& task, const Tensor& gradient,
                    const Scratch& scratch) {
  const KeysAndValues all(inputs, task);
  const Tensor of_all_keys = scratch.key_gradient.narrow(0, 0, task.keys);
  const Tensor of_all_values = scratch.value_gradient.narrow(0, 0, task.keys);
  const double scale = score_scale(inputs);
  // Gradients of keys are summed if tiles of causal or windowed attention have different keys, or
  // if several query heads share a key head.
  const bool adds =
      inputs.rule.causal || inputs.rule.window != 0 || inputs.heads != inputs.key_heads();
  if (adds) {
    of_all_keys.zero_();
    of_all_values.zero_();
  }
  for_each_tile(inputs, task, scratch, [&](const TilePlace& place, int64_t rows) {
    const auto rows_of = [&](const Tensor& x) {
      return slice(x, inputs, task, place.head).narrow(0, place.first_query, rows);
    };
    const Tensor query = rows_of(inputs.query);
    if (place.keys.count == 0) {
      query.zero_();
      return;
    }
    const auto keys_of = [&](const Tensor& x) {
      return x.narrow(0, place.keys.first, place.keys.count);
    };
    const double keep = !adds && place.first_query == 0 ? 0.0 : 1.0;
    const Tensor of_rows = in_float(rows_of(gradient));
    const Tensor query_rows = in_float(query);
    const Tensor key = keys_of(all.key);
    const Tensor scores = Scratch::tile(scratch.scores, rows, place.keys.count);
    const Tensor of_scores = Scratch::tile(scratch.gradient, rows, place.keys.count);
    multiply(scores, query_rows, key.t(), 0.0, scale);
    multiply(of_scores, of_rows, keys_of(all.value).t());
    ScoreTile tile = make_tile(inputs, task, scores, scratch, place);
    tile.gradient = of_scores.mutable_data_ptr<float>();
    softmax_dropout_backward(tile);
    multiply(keys_of(of_all_values), scores.t(), of_rows, keep);
    multiply(keys_of(of_all_keys), of_scores.t(), query_rows, keep, scale);
    const Tensor of_query = scratch.query_gradient.narrow(0, 0, rows);
    multiply(of_query, of_scores, key, 0.0, scale);
    query.copy_(of_query);
  });
  slice(inputs.key, inputs, task, task.key_head).zero_().narrow(0, 0, task.keys).copy_(of_all_keys);
  slice(inputs.value, inputs, task, task.key_head)
      .zero_()
      .narrow(0, 0, task.keys)
      .copy_(of_all_values);
}

template <typename Function>
void for_each_task(const Attention& inputs, bool backward, const Function& function) {
  at::parallel_for(0, count_samples(inputs) * inputs.key_heads(), 1,
                   [&](int64_t begin, int64_t end) {
                     // New threads start with autograd's dispatch, which costs more than a small
                     // product.
                     const at::AutoDispatchBelowADInplaceOrView below_autograd;
                     const Scratch scratch(inputs, backward);
                     for (int64_t index = begin; index < end; ++index)
                       function(make_task(inputs, index), scratch);
                   });
}

}  // namespace

Tensor attention(const Attention& inputs) {
  const Tensor output = at::empty_like(inputs.query);
  for_each_task(inputs, false, [&](const HeadTask& task, const Scratch& scratch) {
    forward_heads(inputs, task, output, scratch);
  });
  return output;
}

void attention_backward(const Attention& inputs, const Tensor& gradient) {
  for_each_task(inputs, true, [&](const HeadTask& task, const Scratch& scratch) {
    backward_heads(inputs, task, gradient, scratch);
  });
}

}  // namespace finetune::kernels::cpu
