// SPDX-License-Identifier: MIT
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/loops/block_tiles.h"
#include "kernels/cpu/loops/tile_product.h"
#include "kernels/cpu/operations.h"

// B samples, T tokens, H heads, D head size.
namespace finetune::kernels::cpu {
namespace {

struct Shape {
  int64_t samples, tokens, heads, width, block, blocks;
  int64_t key_columns, columns;

  explicit Shape(const BlockAttention& inputs)
      : samples(inputs.query.size(0)),
        tokens(inputs.query.size(1)),
        heads(inputs.pattern.heads),
        width(inputs.query.size(2) / heads),
        block(inputs.pattern.block_size),
        blocks(inputs.pattern.blocks),
        key_columns(whole_vectors(block)),
        columns(whole_vectors(width)) {}

  [[nodiscard]] int64_t row_floats() const { return blocks * block * columns; }
  [[nodiscard]] int64_t transposed_floats() const { return blocks * width * key_columns; }
  [[nodiscard]] double scale() const { return 1.0 / std::sqrt(static_cast<double>(width)); }
};

// The unmasked tokens of every sample: 0 or -infinity for each key, and a BlockSeen for each block.
struct SeenTokens {
  std::vector<float> key_add;
  std::vector<uint8_t> seen;

  SeenTokens(const BlockAttention& inputs, const Shape& shape)
      : key_add(static_cast<size_t>(shape.samples * shape.blocks * shape.key_columns),
                -std::numeric_limits<float>::infinity()),
        seen(static_cast<size_t>(shape.samples * shape.blocks), kNoToken) {
    const bool* mask = inputs.mask.defined() ? inputs.mask.const_data_ptr<bool>() : nullptr;
    for (int64_t row = 0; row < shape.samples * shape.blocks; ++row) {
      const int64_t first = row % shape.blocks * shape.block;
      const int64_t begin = row / shape.blocks * shape.tokens + first;
      int64_t count = 0;
      for (int64_t i = 0; i < std::min(shape.block, shape.tokens - first); ++i) {
        if (mask != nullptr && !mask[begin + i]) continue;
        key_add[static_cast<size_t>(row * shape.key_columns + i)] = 0.0F;
        ++count;
      }
      if (count > 0) {
        seen[static_cast<size_t>(row)] = count == shape.key_columns ? kEveryToken : kSomeTokens;
      }
    }
  }
};

// Returns a view [T, D] of one head.
Tensor slice(const Tensor& x, const Shape& shape, int64_t index) {
  return x.select(0, index / shape.heads).narrow(1, index % shape.heads * shape.width, shape.width);
}

// The memory of the heads that are processed at a time, and what the kernels read of each.
class Wave {
 public:
  Wave(const BlockAttention& inputs, bool backward)
      : inputs_(inputs),
        shape_(inputs),
        seen_(inputs, shape_),
        size_(std::min<int64_t>(shape_.samples * shape_.heads, at::get_num_threads())) {
    const auto options = inputs.query.options().dtype(at::kFloat);
    const auto rows = [&] { return at::zeros({size_, shape_.row_floats()}, options); };
    const auto transposed = [&] { return at::empty({size_, shape_.transposed_floats()}, options); };
    query_ = rows();
    key_ = rows();
    value_ = rows();
    key_transposed_ = transposed();
    if (!backward) return;
    of_context_ = rows();
    value_transposed_ = transposed();
    context_dot_ = at::empty({size_, shape_.tokens}, options);
  }

  [[nodiscard]] int64_t heads() const { return shape_.samples * shape_.heads; }
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

  // Packs head `index`, counted over all samples, into slot `position`.
  void pack(int64_t index, int64_t position) const {
    rows(query_, position).copy_(slice(inputs_.query, shape_, index)).mul_(shape_.scale());
    rows(key_, position).copy_(slice(inputs_.key, shape_, index));
    rows(value_, position).copy_(slice(inputs_.value, shape_, index));
    transpose(key_, key_transposed_, position);
  }
  // Also packs dC and rowsum(dC C), which equals rowsum(P dP) of the softmax's gradient.
  void pack_backward(int64_t index, int64_t position, const Tensor& context,
                     const Tensor& gradient) const {
    pack(index, position);
    const Tensor target = rows(of_context_, position).copy_(slice(gradient, shape_, index));
    transpose(value_, value_transposed_, position);
    context_dot_[position].copy_(target.mul(slice(context, shape_, index)).sum(1));
  }

  [[nodiscard]] std::vector<PackedHead> packed(int64_t first, int64_t count,
                                               const Tensor& log_sum_exp) const {
    std::vector<PackedHead> heads;
    for (int64_t i = 0; i < count; ++i) heads.push_back(head(first + i, i, log_sum_exp));
    return heads;
  }

 private:
  [[nodiscard]] PackedHead head(int64_t index, int64_t position, const Tensor& log_sum_exp) const {
    const int64_t sample = index / shape_.heads;
    const auto data = [&](const Tensor& memory) {
      return memory.defined() ? memory[position].const_data_ptr<float>() : nullptr;
    };
    return {.block = shape_.block,
            .key_columns = shape_.key_columns,
            .width = shape_.width,
            .columns = shape_.columns,
            .tokens = shape_.tokens,
            .query = data(query_),
            .key = data(key_),
            .value = data(value_),
            .of_context = data(of_context_),
            .key_transposed = data(key_transposed_),
            .value_transposed = data(value_transposed_),
            .log_sum_exp = log_sum_exp.const_data_ptr<float>() + index * shape_.tokens,
            .context_dot = data(context_dot_),
            .key_add = seen_.key_add.data() + sample * shape_.blocks * shape_.key_columns,
            .seen = seen_.seen.data() + sample * shape_.blocks,
            .dropout = inputs_.dropout,
            .sample = sample,
            .head = index % shape_.heads};
  }

  // Returns a view of the [T, D] matrix in slot `position`.
  [[nodiscard]] Tensor rows(const Tensor& memory, int64_t position) const {
    return memory[position]
        .view({-1, shape_.columns})
        .narrow(0, 0, shape_.tokens)
        .narrow(1, 0, shape_.width);
  }
  void transpose(const Tensor& from, const Tensor& to, int64_t position) const {
    const auto* source = from[position].const_data_ptr<float>();
    auto* target = to[position].mutable_data_ptr<float>();
    for (int64_t i = 0; i < shape_.blocks; ++i) {
      transpose_tile({.source = source + i * shape_.block * shape_.columns,
                      .stride = shape_.columns,
                      .rows = shape_.block,
                      .width = shape_.width,
                      .target = target + i * shape_.width * shape_.key_columns,
                      .columns = shape_.key_columns});
    }
  }

  const BlockAttention& inputs_;
  Shape shape_;
  SeenTokens seen_;
  int64_t size_;
  Tensor query_, key_, value_, of_context_, key_transposed_, value_transposed_, context_dot_;
};

// Calls function(i) for all i in [0, count) on several threads.
template <typename Function>
void in_parallel(int64_t count, const Function& function) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    // New threads start with autograd's dispatch, which costs more than a small product.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t i = begin; i < end; ++i) function(i);
  });
}

// The scratch memory of one thread: for the kernels, and a block of rows.
struct ThreadMemory {
  std::vector<float> scratch, rows;
  explicit ThreadMemory(const PackedHead& head)
      : scratch(static_cast<size_t>(block_scratch(head))),
        rows(static_cast<size_t>(head.block * head.columns)) {}
};

void forward_wave(const Wave& wave, const BlockAttention& inputs, const BlockContext& result,
                  int64_t first) {
  const Shape& shape = wave.shape();
  const int64_t count = std::min(wave.size(), wave.heads() - first);
  in_parallel(count, [&](int64_t position) { wave.pack(first + position, position); });
  const std::vector<PackedHead> heads = wave.packed(first, count, result.log_sum_exp);
  in_parallel(count * shape.blocks, [&](int64_t task) {
    const int64_t position = task / shape.blocks;
    const int64_t block = task % shape.blocks;
    const PackedHead& head = heads[static_cast<size_t>(position)];
    ThreadMemory memory(head);
    const int64_t row = (first + position) * shape.tokens + block * shape.block;
    block_forward({.head = &head,
                   .query_block = block,
                   .key_blocks = inputs.pattern.keys.of(head.head, block),
                   .context = memory.rows.data(),
                   .log_sum_exp = result.log_sum_exp.mutable_data_ptr<float>() + row,
                   .scratch = memory.scratch.data()});
    const Tensor context =
        at::from_blob(memory.rows.data(), {head.rows(block), shape.width}, {shape.columns, 1});
    slice(result.context, shape, first + position)
        .narrow(0, block * shape.block, head.rows(block))
        .copy_(context);
  });
}

struct Gradients {
  Tensor query, key, value;  // [heads of a wave, blocks * block, columns]
};

// Used if there are enough heads for all threads: each pair of blocks is computed once.
void backward_by_head(const PackedHead& head, const BlockPattern& pattern, float* of_query,
                      float* of_key, float* of_value) {
  ThreadMemory memory(head);
  for (int64_t block = 0; block < pattern.blocks; ++block) {
    block_backward({.head = &head,
                    .is_query_block = true,
                    .index = block,
                    .others = pattern.keys.of(head.head, block),
                    .of_query = of_query,
                    .of_key = of_key,
                    .of_value = of_value,
                    .scratch = memory.scratch.data()});
  }
}

// Used if there are fewer heads than threads: a task computes the gradient of one block of queries,
// or of one block of keys and values. Scores are computed twice, but the sums run in the same order
// as above.
void backward_by_block(const PackedHead& head, const BlockPattern& pattern, int64_t task,
                       float* of_query, float* of_key, float* of_value) {
  ThreadMemory memory(head);
  const int64_t block = task / 2;
  const bool of_queries = task % 2 == 0;
  block_backward({.head = &head,
                  .is_query_block = of_queries,
                  .index = block,
                  .others = (of_queries ? pattern.keys : pattern.queries).of(head.head, block),
                  .of_query = of_queries ? of_query : nullptr,
                  .of_key = of_queries ? nullptr : of_key,
                  .of_value = of_queries ? nullptr : of_value,
                  .scratch = memory.scratch.data()});
}

void backward_wave(const Wave& wave, const BlockAttention& inputs, const BlockContext& forward,
                   const Tensor& gradient, const Gradients& sums, int64_t first) {
  const Shape& shape = wave.shape();
  const int64_t count = std::min(wave.size(), wave.heads() - first);
  for (const Tensor& sum : {sums.query, sums.key, sums.value}) sum.zero_();
  const auto data = [&](const Tensor& sum, int64_t position) {
    return sum.mutable_data_ptr<float>() + position * shape.row_floats();
  };
  in_parallel(count, [&](int64_t position) {
    wave.pack_backward(first + position, position, forward.context, gradient);
  });
  const std::vector<PackedHead> heads = wave.packed(first, count, forward.log_sum_exp);
  const bool by_head = count >= at::get_num_threads();
  const int64_t tasks = by_head ? 1 : 2 * shape.blocks;
  in_parallel(count * tasks, [&](int64_t index) {
    const int64_t position = index / tasks;
    const PackedHead& head = heads[static_cast<size_t>(position)];
    float* of_query = data(sums.query, position);
    float* of_key = data(sums.key, position);
    float* of_value = data(sums.value, position);
    if (by_head) {
      backward_by_head(head, inputs.pattern, of_query, of_key, of_value);
    } else {
      backward_by_block(head, inputs.pattern, index % tasks, of_query, of_key, of_value);
    }
  });
  in_parallel(count, [&](int64_t position) {
    const auto store = [&](const Tensor& sum, const Tensor& target) {
      slice(target, shape, first + position)
          .copy_(sum[position]
                     .view({-1, shape.columns})
                     .narrow(0, 0, shape.tokens)
                     .narrow(1, 0, shape.width));
    };
    sums.query[position].mul_(shape.scale());
    store(sums.query, inputs.query);
    store(sums.key, inputs.key);
    store(sums.value, inputs.value);
  });
}

}  // namespace

BlockContext block_attention(const BlockAttention& inputs) {
  const Wave wave(inputs, false);
  const Shape& shape = wave.shape();
  const BlockContext result = {.context = at::empty_like(inputs.query),
                               .log_sum_exp = at::empty({shape.samples, shape.heads, shape.tokens},
                                                        inputs.query.options().dtype(at::kFloat))};
  for (int64_t first = 0; first < wave.heads(); first += wave.size()) {
    forward_wave(wave, inputs, result, first);
  }
  return result;
}

void block_attention_backward(const BlockAttention& inputs, const BlockContext& forward,
                              const Tensor& gradient) {
  const Wave wave(inputs, true);
  const auto rows = [&] {
    return at::empty({wave.size(), wave.shape().row_floats()},
                     inputs.query.options().dtype(at::kFloat));
  };
  const Gradients sums = {.query = rows(), .key = rows(), .value = rows()};
  for (int64_t first = 0; first < wave.heads(); first += wave.size()) {
    backward_wave(wave, inputs, forward, gradient, sums, first);
  }
}

}  // namespace finetune::kernels::cpu
