// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/attention_core.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "finetune/base/error.h"
#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/tile_product.h"
#include "kernels/cpu/operations.h"

// B samples, T tokens, H heads, D head size.
namespace finetune::kernels::cpu {
namespace {

// Sizes of a tile, so that its scores and their gradient fit a core's cache.
constexpr int64_t kScoresPerTile = 1 << 16;
constexpr int64_t kFewestRows = 32;
// Fewer for causal attention: half of a tile's last keys are computed although they are masked.
constexpr int64_t kMostCausalRows = 64;
// The same for a tile of several heads, whose rows of each head are a multiple of the fewest.
constexpr int64_t kScoresPerGroupTile = 1 << 17;
constexpr int64_t kFewestGroupRows = 16;

// A float32 matrix in memory that it does not own. Strides are in values.
struct Matrix {
  float* data;
  int64_t rows, columns;
  int64_t row_stride, column_stride = 1;

  [[nodiscard]] Matrix t() const { return {data, columns, rows, column_stride, row_stride}; }
  [[nodiscard]] Matrix row_range(int64_t first, int64_t count) const {
    return {data + first * row_stride, count, columns, row_stride, column_stride};
  }
  [[nodiscard]] Matrix column_range(int64_t first, int64_t count) const {
    return {data + first * column_stride, rows, count, row_stride, column_stride};
  }
};

// The same memory as a tensor [rows, columns], valid as long as the memory is.
Tensor as_tensor(const Matrix& x) {
  return at::from_blob(x.data, {x.rows, x.columns}, {x.row_stride, x.column_stride}, at::kFloat);
}

TileProduct product_of(const Matrix& target, const Matrix& left, const Matrix& right, float scale) {
  FT_CHECK(right.column_stride == 1 && target.column_stride == 1 && left.columns == right.rows &&
               target.rows == left.rows && target.columns == right.columns,
           "factors that fit, in rows without gaps");
  return {.left = left.data,
          .left_row = left.row_stride,
          .left_column = left.column_stride,
          .right = right.data,
          .right_row = right.row_stride,
          .target = target.data,
          .target_row = target.row_stride,
          .rows = target.rows,
          .columns = target.columns,
          .sums = left.columns,
          .scale = scale};
}

// target = scale left right. Of `right` whole vectors are read.
void set(const Matrix& target, const Matrix& left, const Matrix& right, float scale = 1.0F) {
  set_product(product_of(target, left, right, scale));
}
// target += scale left right
void add(const Matrix& target, const Matrix& left, const Matrix& right, float scale = 1.0F) {
  add_product(product_of(target, left, right, scale));
}

// One key head of one sample and the query heads that it serves.
struct HeadTask {
  int64_t first;             // first token, counted in the batch
  int64_t tokens;            // number of tokens of the sample
  int64_t first_query;       // first row of the queries
  int64_t queries;           // number of queries of the sample
  const int64_t* positions;  // [queries] their numbers in the sample; null: all tokens'
  int64_t sample;
  int64_t key_head;
  int64_t keys;                // number of keys up to the last unmasked one
  std::vector<float> key_add;  // 0 or -infinity; empty: no key is masked
};

HeadTask make_task(const Attention& inputs, int64_t index) {
  const TokenLayout* layout = inputs.layout;
  const int64_t sample = index / inputs.key_heads();
  const int64_t tokens = layout == nullptr ? inputs.key.size(1) : layout->length(sample);
  HeadTask task = {
      .first = layout == nullptr ? sample * tokens : layout->offsets[static_cast<size_t>(sample)],
      .tokens = tokens,
      .first_query = 0,
      .queries = tokens,
      .positions = nullptr,
      .sample = sample,
      .key_head = index % inputs.key_heads(),
      .keys = tokens,
      .key_add = {}};
  task.first_query = task.first;
  if (const TokenLayout* const read = inputs.queries; read != nullptr) {
    task.first_query = read->offsets[static_cast<size_t>(sample)];
    task.queries = read->length(sample);
    task.positions = read->positions.const_data_ptr<int64_t>() + task.first_query;
  }
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

// Some tokens of one head in a tensor [B, T, H D]. Products of a head are so small that views of
// ATen would cost more than they do, so float32 is read and written in place. Other types are
// copied by views, and so are factors whose rows are not whole vectors.
struct HeadRows {
  const Tensor& tensor;
  int64_t size;  // D
  int64_t head;
  int64_t first;  // token of the batch
  int64_t rows;

  // Where it is float32.
  [[nodiscard]] Matrix memory() const {
    const int64_t width = tensor.size(2);
    auto* data = static_cast<float*>(tensor.mutable_data_ptr());
    return {data + first * width + head * size, rows, size, width};
  }
  [[nodiscard]] Tensor view() const {
    return tensor.view({-1, tensor.size(2)}).narrow(0, first, rows).narrow(1, head * size, size);
  }
  [[nodiscard]] bool is_float() const { return tensor.scalar_type() == at::kFloat; }
  // Whether a product may read them in memory().
  [[nodiscard]] bool is_factor() const { return is_float() && size == whole_vectors(size); }
};

// Their values in float32.
class HeadValues {
 public:
  explicit HeadValues(const HeadRows& rows) {
    if (rows.is_factor()) {
      matrix_ = rows.memory();
      return;
    }
    const int64_t width = whole_vectors(rows.size);
    copy_ = at::empty({rows.rows, width}, rows.tensor.options().dtype(at::kFloat));
    copy_.narrow(1, 0, rows.size).copy_(rows.view());
    matrix_ = {copy_.mutable_data_ptr<float>(), rows.rows, rows.size, width};
  }
  [[nodiscard]] const Matrix& matrix() const { return matrix_; }

 private:
  Matrix matrix_ = {};
  Tensor copy_;
};

void copy_rows(const Matrix& from, const Matrix& to) {
  for (int64_t r = 0; r < to.rows; ++r) {
    std::memcpy(to.data + r * to.row_stride, from.data + r * from.row_stride,
                static_cast<size_t>(to.columns) * sizeof(float));
  }
}

void load_values(const HeadRows& rows, const Matrix& to) {
  if (rows.is_float()) return copy_rows(rows.memory(), to);
  as_tensor(to).copy_(rows.view());
}

void store_values(const Matrix& values, const HeadRows& rows) {
  if (rows.is_float()) return copy_rows(values, rows.memory());
  rows.view().copy_(as_tensor(values));
}

// The keys [first, first + count) that at least one query of a tile attends to.
struct KeyRange {
  int64_t first, count;
};

// `rows`: at least one.
KeyRange keys_of_rows(const Attention& inputs, const HeadTask& task, int64_t first, int64_t rows) {
  const int64_t window = inputs.rule.window;
  if (!inputs.rule.causal && window == 0) return {0, task.keys};
  const auto number = [&](int64_t row) { return task.positions ? task.positions[row] : row; };
  const int64_t after = inputs.rule.causal ? 0 : window - 1;
  const int64_t end = std::min(task.keys, number(first + rows - 1) + 1 + after);
  const int64_t begin = window == 0 ? 0 : std::max<int64_t>(0, number(first) - window + 1);
  return {begin, std::max<int64_t>(0, end - begin)};
}

// Returns the number of query heads that share one key head.
int64_t group_of(const Attention& inputs) { return inputs.heads / inputs.key_heads(); }

// Returns the rows of each head of a tile.
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

// Between the rows of a transposed matrix: a product reads whole vectors of any range of columns.
// Rows that were multiples of 1 KiB apart would share few lines of a cache.
int64_t transposed_columns(int64_t tokens) {
  const int64_t columns = whole_vectors(tokens) + kLanes;
  return columns % 256 == 0 ? columns + kLanes : columns;
}

// The memory of one thread.
struct Scratch {
  int64_t rows;  // rows of each head of a tile, at most
  int64_t keys;  // keys of a tile, at most
  Tensor scores, gradient, row, query, context_gradient;
  Tensor query_gradient, key_gradient, value_gradient;  // the first: forward, the context
  Tensor key_transposed, value_transposed;

  Scratch(const Attention& inputs, bool backward) {
    const int64_t tokens = inputs.longest();
    rows = rows_of_tile(inputs, tokens);
    const int64_t group = group_of(inputs);
    const int64_t size = inputs.head_size();
    const int64_t width = whole_vectors(size);
    const bool copies = group > 1 || inputs.query.scalar_type() != at::kFloat;
    const bool gathers = copies || size != width;
    const std::initializer_list<int64_t> transposed = {size, transposed_columns(tokens) + kLanes};
    const int64_t window = inputs.rule.window;
    const int64_t seen = inputs.rule.causal ? window : 2 * window;
    keys = window == 0 ? tokens : std::min(tokens, seen + rows);
    const auto options = inputs.query.options().dtype(at::kFloat);
    scores = at::empty({group * rows * keys}, options);
    key_transposed = at::empty(transposed, options);
    row = at::empty({attention_scratch(tokens)}, options);
    if (copies) query_gradient = at::empty({group * rows, size}, options);
    if (gathers) query = at::empty({group * rows, width}, options);
    if (!backward) return;
    if (gathers) context_gradient = at::empty({group * rows, width}, options);
    value_transposed = at::empty(transposed, options);
    gradient = at::empty({group * rows * keys}, options);
    key_gradient = at::empty({tokens, size}, options);
    value_gradient = at::empty({tokens, size}, options);
  }
  // The first rows of this memory, one after the other.
  [[nodiscard]] static Matrix matrix(const Tensor& memory, int64_t rows, int64_t columns) {
    return matrix(memory, rows, columns, columns);
  }
  [[nodiscard]] static Matrix matrix(const Tensor& memory, int64_t rows, int64_t columns,
                                     int64_t row_stride) {
    FT_CHECK(rows * row_stride <= memory.numel(), "a tile fits its memory");
    return {memory.mutable_data_ptr<float>(), rows, columns, row_stride};
  }
};

// The query rows of a tile: `rows` rows of each of `heads` heads, from the sample's query
// `first_query` on, one head after the other.
struct TilePosition {
  int64_t first_head, heads, first_query, rows;
  KeyRange keys;

  [[nodiscard]] int64_t count() const { return heads * rows; }
};

// The scores of one head of a tile.
ScoreTile make_tile(const Attention& inputs, const HeadTask& task, const Matrix& scores,
                    const Scratch& scratch, const TilePosition& position, int64_t head) {
  const float* key_add = task.key_add.empty() ? nullptr : task.key_add.data() + position.keys.first;
  return {.scores = scores.data,
          .gradient = nullptr,
          .key_add = key_add,
          .rows = scores.rows,
          .keys = position.keys.count,
          .dropout = inputs.dropout,
          .sample = task.sample,
          .head = head,
          .first_query = position.first_query,
          .queries = task.positions ? task.positions + position.first_query : nullptr,
          .first_key = position.keys.first,
          .causal = inputs.rule.causal,
          .window = inputs.rule.window,
          .softcap = static_cast<float>(inputs.rule.softcap),
          .sink = inputs.sinks.defined() ? inputs.sinks.const_data_ptr<float>() + head : nullptr,
          .of_sink = nullptr,
          .scratch = scratch.row.mutable_data_ptr<float>()};
}

float score_scale(const Attention& inputs) {
  if (inputs.rule.scale != 0.0) return static_cast<float>(inputs.rule.scale);
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(inputs.head_size())));
}

// The tokens of a task, from its first on, of a head of its keys or values.
HeadRows key_rows(const Tensor& x, const Attention& inputs, const HeadTask& task, int64_t tokens) {
  return {x, inputs.head_size(), task.key_head, task.first, tokens};
}

// Keys and values in float32 up to the last unmasked one, shared by the heads of a task.
struct KeysAndValues {
  HeadValues key, value;

  KeysAndValues(const Attention& inputs, const HeadTask& task)
      : key(key_rows(inputs.key, inputs, task, task.keys)),
        value(key_rows(inputs.value, inputs, task, task.keys)) {}
};

// x^T [D, rows] in `memory`.
Matrix transposed(const Matrix& x, const Tensor& memory) {
  const Matrix result = Scratch::matrix(memory, x.columns, x.rows, transposed_columns(x.rows));
  transpose_tile({.source = x.data,
                  .stride = x.row_stride,
                  .rows = x.rows,
                  .width = x.columns,
                  .target = result.data,
                  .columns = result.row_stride});
  return result;
}

// Calls `function` with each tile of the query heads.
template <typename Function>
void for_each_tile(const Attention& inputs, const HeadTask& task, const Scratch& scratch,
                   const Function& function) {
  const int64_t group = group_of(inputs);
  for (int64_t first = 0; first < task.queries;) {
    int64_t rows = std::min(scratch.rows, task.queries - first);
    // With a window, those of queries that are far apart are more than those of neighbours.
    while (rows > 1 && keys_of_rows(inputs, task, first, rows).count > scratch.keys) --rows;
    function(TilePosition{.first_head = task.key_head * group,
                          .heads = group,
                          .first_query = first,
                          .rows = rows,
                          .keys = keys_of_rows(inputs, task, first, rows)});
    first += rows;
  }
}

// Calls `function` with each head of a tile and its rows of `x`, [heads * rows, ...].
template <typename Function>
void for_each_head(const TilePosition& position, const Matrix& x, const Function& function) {
  for (int64_t i = 0; i < position.heads; ++i) {
    function(position.first_head + i, x.row_range(i * position.rows, position.rows));
  }
}

// The rows of one tile in tensors of the query's shape.
class TileRows {
 public:
  TileRows(const Attention& inputs, const HeadTask& task, const TilePosition& position)
      : size_(inputs.head_size()),
        first_(task.first_query + position.first_query),
        position_(position) {}

  // Returns [heads * rows, D] in float32: in place for one head of float32, else copied to
  // `memory`.
  [[nodiscard]] Matrix of(const Tensor& x, const Tensor& memory) const {
    const HeadRows only = of_head(x, position_.first_head);
    if (position_.heads == 1 && only.is_factor()) return only.memory();
    const Matrix all = Scratch::matrix(memory, position_.count(), size_, whole_vectors(size_));
    for_each_head(position_, all,
                  [&](int64_t head, const Matrix& rows) { load_values(of_head(x, head), rows); });
    return all;
  }
  // Calls `compute` with the matrix to write them to.
  template <typename Compute>
  void set(const Tensor& x, const Tensor& memory, const Compute& compute) const {
    const HeadRows only = of_head(x, position_.first_head);
    if (position_.heads == 1 && only.is_float()) return compute(only.memory());
    const Matrix values = Scratch::matrix(memory, position_.count(), size_);
    compute(values);
    for_each_head(position_, values,
                  [&](int64_t head, const Matrix& rows) { store_values(rows, of_head(x, head)); });
  }
  void clear(const Tensor& x) const {
    for (int64_t i = 0; i < position_.heads; ++i)
      of_head(x, position_.first_head + i).view().zero_();
  }

 private:
  [[nodiscard]] HeadRows of_head(const Tensor& x, int64_t head) const {
    return {x, size_, head, first_, position_.rows};
  }

  int64_t size_;
  int64_t first_;  // row of the batch
  const TilePosition& position_;
};

// For each tile: S = scale Q K^T, then context = Dropout(softmax(S)) V. The query heads of a key
// head are the rows of one product.
void forward_heads(const Attention& inputs, const HeadTask& task, const Tensor& output,
                   const Scratch& scratch) {
  const KeysAndValues all(inputs, task);
  const Matrix key = transposed(all.key.matrix(), scratch.key_transposed);
  const float scale = score_scale(inputs);
  for_each_tile(inputs, task, scratch, [&](const TilePosition& position) {
    const TileRows rows(inputs, task, position);
    const int64_t keys = position.keys.count;
    if (keys == 0) return rows.clear(output);
    const Matrix value = all.value.matrix().row_range(position.keys.first, keys);
    const Matrix scores = Scratch::matrix(scratch.scores, position.count(), keys);
    set(scores, rows.of(inputs.query, scratch.query), key.column_range(position.keys.first, keys),
        scale);
    for_each_head(position, scores, [&](int64_t head, const Matrix& of_head) {
      softmax_dropout(make_tile(inputs, task, of_head, scratch, position, head));
    });
    rows.set(output, scratch.query_gradient,
             [&](const Matrix& context) { set(context, scores, value); });
  });
}

// The gradient of the keys or the values; those that nothing may attend to have none.
void store_key_gradient(const Matrix& values, const Tensor& x, const Attention& inputs,
                        const HeadTask& task) {
  if (task.keys < task.tokens) key_rows(x, inputs, task, task.tokens).view().zero_();
  store_values(values, key_rows(x, inputs, task, task.keys));
}

void backward_heads(const Attention& inputs, const HeadTask& task, const Tensor& gradient,
                    const Scratch& scratch) {
  const KeysAndValues all(inputs, task);
  const int64_t size = inputs.head_size();
  const Matrix of_all_keys = Scratch::matrix(scratch.key_gradient, task.keys, size);
  const Matrix of_all_values = Scratch::matrix(scratch.value_gradient, task.keys, size);
  const Matrix key_columns = transposed(all.key.matrix(), scratch.key_transposed);
  const Matrix value_columns = transposed(all.value.matrix(), scratch.value_transposed);
  const float scale = score_scale(inputs);
  // Tiles of causal or windowed attention have different keys, and those of several heads add up.
  const bool adds = inputs.rule.causal || inputs.rule.window != 0 ||
                    inputs.heads != inputs.key_heads() || task.queries == 0;
  if (adds) {
    std::fill_n(of_all_keys.data, task.keys * size, 0.0F);
    std::fill_n(of_all_values.data, task.keys * size, 0.0F);
  }
  for_each_tile(inputs, task, scratch, [&](const TilePosition& position) {
    const TileRows rows(inputs, task, position);
    const int64_t keys = position.keys.count;
    if (keys == 0) return rows.clear(inputs.query);
    const auto rows_of = [&](const Matrix& x) { return x.row_range(position.keys.first, keys); };
    const auto columns_of = [&](const Matrix& x) {
      return x.column_range(position.keys.first, keys);
    };
    const bool is_first = !adds && position.first_query == 0;
    const Matrix of_rows = rows.of(gradient, scratch.context_gradient);
    const Matrix query_rows = rows.of(inputs.query, scratch.query);
    const Matrix scores = Scratch::matrix(scratch.scores, position.count(), keys);
    const Matrix of_scores = Scratch::matrix(scratch.gradient, position.count(), keys);
    set(scores, query_rows, columns_of(key_columns), scale);
    set(of_scores, of_rows, columns_of(value_columns));
    for_each_head(position, scores, [&](int64_t head, const Matrix& of_head) {
      ScoreTile tile = make_tile(inputs, task, of_head, scratch, position, head);
      tile.gradient = of_scores.data + (of_head.data - scores.data);
      if (inputs.sinks.defined()) {
        tile.of_sink =
            inputs.of_sinks.mutable_data_ptr<float>() + task.sample * inputs.heads + head;
      }
      softmax_dropout_backward(tile);
    });
    if (is_first) {
      set(rows_of(of_all_values), scores.t(), of_rows);
      set(rows_of(of_all_keys), of_scores.t(), query_rows, scale);
    } else {
      add(rows_of(of_all_values), scores.t(), of_rows);
      add(rows_of(of_all_keys), of_scores.t(), query_rows, scale);
    }
    rows.set(inputs.query, scratch.query_gradient, [&](const Matrix& of_query) {
      set(of_query, of_scores, rows_of(all.key.matrix()), scale);
    });
  });
  store_key_gradient(of_all_keys, inputs.key, inputs, task);
  store_key_gradient(of_all_values, inputs.value, inputs, task);
}

template <typename Function>
void for_each_task(const Attention& inputs, bool backward, const Function& function) {
  at::parallel_for(0, inputs.samples() * inputs.key_heads(), 1, [&](int64_t begin, int64_t end) {
    // New threads start with autograd's dispatch, which costs more than a small product.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Scratch scratch(inputs, backward);
    for (int64_t index = begin; index < end; ++index) function(make_task(inputs, index), scratch);
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
  const Tensor in_rows = gradient.contiguous();
  for_each_task(inputs, true, [&](const HeadTask& task, const Scratch& scratch) {
    backward_heads(inputs, task, in_rows, scratch);
  });
}

}  // namespace finetune::kernels::cpu
