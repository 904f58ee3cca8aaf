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

// A tile of scores and its gradient fit a core's cache.
constexpr int64_t kScoresPerTile = 1 << 16;
constexpr int64_t kFewestRows = 32;
// Of a causal tile: half of its last keys are computed for nothing.
constexpr int64_t kMostCausalRows = 64;
// Of a tile of several heads, whose rows are multiples of the fewest.
constexpr int64_t kScoresPerGroupTile = 1 << 17;
constexpr int64_t kFewestGroupRows = 16;

// A head of the keys and the heads of the queries that it serves.
struct HeadTask {
  int64_t first;   // token of the batch
  int64_t tokens;  // of the sample
  int64_t sample;
  int64_t key_head;
  int64_t keys;                // up to the last that may be attended to
  std::vector<float> key_add;  // empty: all keys may be attended to
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

// [T, D] of one head: a view.
Tensor slice(const Tensor& x, const Attention& inputs, const HeadTask& task, int64_t head) {
  const int64_t size = inputs.head_size();
  return x.view({-1, x.size(2)}).narrow(0, task.first, task.tokens).narrow(1, head * size, size);
}

// The keys that some query of a tile may see: [first, first + count).
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

// Heads of the queries that one head of the keys serves.
int64_t group_of(const Attention& inputs) { return inputs.heads / inputs.key_heads(); }

// Of each head of a tile.
int64_t rows_of_tile(const Attention& inputs, int64_t tokens) {
  const int64_t group = group_of(inputs);
  if (group > 1) {
    const int64_t fitting = kScoresPerGroupTile / (group * tokens) / kFewestGroupRows;
    return std::min(tokens,
                    std::clamp(fitting * kFewestGroupRows, kFewestGroupRows, kMostCausalRows));
  }
  const int64_t rows = std::min(tokens, std::max(kFewestRows, kScoresPerTile / tokens));
  const bool hides_keys = inputs.rule.causal || inputs.rule.window != 0;
  return hides_keys ? std::min(rows, kMostCausalRows) : rows;
}

// The memory of one thread.
struct Scratch {
  int64_t rows;  // of each head of a tile
  Tensor scores, gradient, row, query, context_gradient;
  Tensor query_gradient, key_gradient, value_gradient;

  Scratch(const Attention& inputs, bool backward) {
    const int64_t tokens = longest_sample(inputs);
    rows = rows_of_tile(inputs, tokens);
    const int64_t group = group_of(inputs);
    const int64_t window = inputs.rule.window;
    const int64_t seen = inputs.rule.causal ? window : 2 * window;
    const int64_t keys = window == 0 ? tokens : std::min(tokens, seen + rows);
    const auto options = inputs.query.options().dtype(at::kFloat);
    const int64_t size = inputs.head_size();
    scores = at::empty({group * rows * keys}, options);
    query_gradient = at::empty({group * rows, size}, options);  // or the context
    row = at::empty({attention_scratch(tokens)}, options);
    if (group > 1) query = at::empty({group * rows, size}, options);
    if (!backward) return;
    if (group > 1) context_gradient = at::empty({group * rows, size}, options);
    gradient = at::empty({group * rows * keys}, options);
    key_gradient = at::empty({tokens, size}, options);
    value_gradient = at::empty({tokens, size}, options);
  }
  [[nodiscard]] static Tensor tile(const Tensor& memory, int64_t rows, int64_t keys) {
    return memory.narrow(0, 0, rows * keys).view({rows, keys});
  }
};

// Rows of the queries of `heads` heads, from the sample's row `first_query` on: one head after the
// other.
struct TilePlace {
  int64_t first_head, heads, first_query, rows;
  KeyRange keys;
};

// The scores of one head of a tile.
ScoreTile make_tile(const Attention& inputs, const HeadTask& task, const Tensor& scores,
                    const Scratch& scratch, const TilePlace& place, int64_t head) {
  const float* key_add = task.key_add.empty() ? nullptr : task.key_add.data() + place.keys.first;
  return {.scores = scores.mutable_data_ptr<float>(),
          .gradient = nullptr,
          .key_add = key_add,
          .rows = scores.size(0),
          .keys = place.keys.count,
          .dropout = inputs.dropout,
          .sample = task.sample,
          .head = head,
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

// target <- target * beta + a b * alpha
void multiply(const Tensor& target, const Tensor& a, const Tensor& b, double beta = 0.0,
              double alpha = 1.0) {
  target.addmm_(a, b, beta, alpha);
}

// What the heads of a task share: keys and values in float32, all that may be attended to.
struct KeysAndValues {
  Tensor key, value;

  KeysAndValues(const Attention& inputs, const HeadTask& task)
      : key(in_float(slice(inputs.key, inputs, task, task.key_head).narrow(0, 0, task.keys))),
        value(in_float(slice(inputs.value, inputs, task, task.key_head).narrow(0, 0, task.keys))) {}
};

// Calls `function` with each tile of the heads of the queries.
template <typename Function>
void for_each_tile(const Attention& inputs, const HeadTask& task, const Scratch& scratch,
                   const Function& function) {
  const int64_t group = group_of(inputs);
  for (int64_t first = 0; first < task.tokens; first += scratch.rows) {
    const int64_t rows = std::min(scratch.rows, task.tokens - first);
    function(TilePlace{.first_head = task.key_head * group,
                       .heads = group,
                       .first_query = first,
                       .rows = rows,
                       .keys = keys_of_rows(inputs, task, first, rows)});
  }
}

// Calls `function` with each head of a tile and the rows of its own in `x`, [heads * rows, ..].
template <typename Function>
void for_each_head(const TilePlace& place, const Tensor& x, const Function& function) {
  for (int64_t i = 0; i < place.heads; ++i) {
    function(place.first_head + i, x.narrow(0, i * place.rows, place.rows));
  }
}

// Of one tile: its rows in tensors like the query.
class TileRows {
 public:
  TileRows(const Attention& inputs, const HeadTask& task, const TilePlace& place)
      : inputs_(inputs), task_(task), place_(place) {}

  // [heads * rows, D] in float32: a view where it is one head's, else in `memory`.
  [[nodiscard]] Tensor of(const Tensor& x, const Tensor& memory) const {
    if (place_.heads == 1) return in_float(of_head(x, place_.first_head));
    const Tensor all = memory.narrow(0, 0, place_.heads * place_.rows);
    for_each_head(place_, all,
                  [&](int64_t head, const Tensor& rows) { rows.copy_(of_head(x, head)); });
    return all;
  }
  void set(const Tensor& x, const Tensor& values) const {
    for_each_head(place_, values,
                  [&](int64_t head, const Tensor& rows) { of_head(x, head).copy_(rows); });
  }
  void clear(const Tensor& x) const {
    for (int64_t i = 0; i < place_.heads; ++i) of_head(x, place_.first_head + i).zero_();
  }

 private:
  [[nodiscard]] Tensor of_head(const Tensor& x, int64_t head) const {
    return slice(x, inputs_, task_, head).narrow(0, place_.first_query, place_.rows);
  }

  const Attention& inputs_;
  const HeadTask& task_;
  const TilePlace& place_;
};

void forward_heads(const Attention& inputs, const HeadTask& task, const Tensor& output,
                   const Scratch& scratch) {
  const KeysAndValues all(inputs, task);
  for_each_tile(inputs, task, scratch, [&](const TilePlace& place) {
    const TileRows rows(inputs, task, place);
    if (place.keys.count == 0) return rows.clear(output);
    const int64_t count = place.heads * place.rows;
    const Tensor key = all.key.narrow(0, place.keys.first, place.keys.count);
    const Tensor value = all.value.narrow(0, place.keys.first, place.keys.count);
    const Tensor scores = Scratch::tile(scratch.scores, count, place.keys.count);
    multiply(scores, rows.of(inputs.query, scratch.query), key.t(), 0.0, score_scale(inputs));
    for_each_head(place, scores, [&](int64_t head, const Tensor& of_head) {
      softmax_dropout(make_tile(inputs, task, of_head, scratch, place, head));
    });
    const Tensor result = scratch.query_gradient.narrow(0, 0, count);
    multiply(result, scores, value);
    rows.set(output, result);
  });
}

void backward_heads(const Attention& inputs, const HeadTask& task, const Tensor& gradient,
                    const Scratch& scratch) {
  const KeysAndValues all(inputs, task);
  const Tensor of_all_keys = scratch.key_gradient.narrow(0, 0, task.keys);
  const Tensor of_all_values = scratch.value_gradient.narrow(0, 0, task.keys);
  const double scale = score_scale(inputs);
  // Tiles of causal or windowed attention have different keys, and those of several heads add up.
  const bool adds =
      inputs.rule.causal || inputs.rule.window != 0 || inputs.heads != inputs.key_heads();
  if (adds) {
    of_all_keys.zero_();
    of_all_values.zero_();
  }
  for_each_tile(inputs, task, scratch, [&](const TilePlace& place) {
    const TileRows rows(inputs, task, place);
    if (place.keys.count == 0) return rows.clear(inputs.query);
    const int64_t count = place.heads * place.rows;
    const auto keys_of = [&](const Tensor& x) {
      return x.narrow(0, place.keys.first, place.keys.count);
    };
    const double keep = !adds && place.first_query == 0 ? 0.0 : 1.0;
    const Tensor of_rows = rows.of(gradient, scratch.context_gradient);
    const Tensor query_rows = rows.of(inputs.query, scratch.query);
    const Tensor key = keys_of(all.key);
    const Tensor scores = Scratch::tile(scratch.scores, count, place.keys.count);
    const Tensor of_scores = Scratch::tile(scratch.gradient, count, place.keys.count);
    multiply(scores, query_rows, key.t(), 0.0, scale);
    multiply(of_scores, of_rows, keys_of(all.value).t());
    for_each_head(place, scores, [&](int64_t head, const Tensor& of_head) {
      ScoreTile tile = make_tile(inputs, task, of_head, scratch, place, head);
      tile.gradient =
          of_scores.mutable_data_ptr<float>() + (tile.scores - scores.const_data_ptr<float>());
      softmax_dropout_backward(tile);
    });
    multiply(keys_of(of_all_values), scores.t(), of_rows, keep);
    multiply(keys_of(of_all_keys), of_scores.t(), query_rows, keep, scale);
    const Tensor of_query = scratch.query_gradient.narrow(0, 0, count);
    multiply(of_query, of_scores, key, 0.0, scale);
    rows.set(inputs.query, of_query);
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
                     // Threads begin with autograd's dispatch, which costs more than a small
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
