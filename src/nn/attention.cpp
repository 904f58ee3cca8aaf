// SPDX-License-Identifier: MIT
#include "finetune/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/nn/elementwise.h"
#include "finetune/tensor/device.h"

namespace finetune::nn {
namespace {

Tensor by_head(const Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, -1}).transpose(1, 2);  // [B, H, T, D]
}

Tensor joined(const Tensor& by_heads) { return by_heads.transpose(1, 2).flatten(2); }

// Repeats each key head for its group of query heads: [B, kv, T, D] -> [B, H, T, D].
Tensor for_each_head(const Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1, -1}).flatten(1, 2);
}

// Returns which keys S the causal rule and the window allow for T queries, the first of which is
// token `first`: [T, S] bool.
Tensor keys_before(const Tensor& scores, int64_t first, const AttentionOptions& options) {
  const auto integers = scores.options().dtype(at::kLong);
  const Tensor queries = at::arange(first, first + scores.size(-2), integers);
  const Tensor distance = queries.unsqueeze(1) - at::arange(scores.size(-1), integers);
  if (!options.causal) return distance.abs().lt(options.window);
  const Tensor seen = distance.ge(0);
  return options.window > 0 ? seen.logical_and(distance.lt(options.window)) : seen;
}

// softmax(scores), with a further score of each row of a head, if there are sinks [heads].
Tensor softmax_with(const Tensor& scores, const Tensor& sinks) {
  if (!sinks.defined()) return scores.softmax(-1);
  std::vector<int64_t> shape = scores.sizes().vec();
  shape.back() = 1;
  const Tensor further = sinks.view({1, -1, 1, 1}).to(scores.scalar_type()).expand(shape);
  return at::cat({scores, further}, -1).softmax(-1).narrow(-1, 0, scores.size(-1));
}

// Combines these keys with the mask: [.., T, T] or [B, 1, 1, T]; undefined: all keys are allowed.
Tensor allowed_keys(const Tensor& scores, const AttentionOptions& options, const Tensor& mask) {
  if (!options.causal && options.window == 0) return mask;
  const Tensor allowed = keys_before(scores, 0, options);
  return mask.defined() ? allowed.logical_and(mask) : allowed;
}

// softmax(Q K^T scale) V per head; ATen's fused kernel computes it where there is no dropout,
// causal rule or window.
Tensor full_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const AttentionOptions& options, const kernels::PassInputs& pass) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const Tensor q = by_head(query, options.heads);
  const Tensor k = for_each_head(by_head(key, kv_heads), options.heads);
  const Tensor v = for_each_head(by_head(value, kv_heads), options.heads);
  const bool drops = pass.dropout && options.dropout != 0.0;
  // Where operators are compiled, the fused one is a call that only a TPU runs: XLA fuses these
  // itself.
  const bool is_plain = !options.causal && options.window == 0 && !options.sinks.defined();
  if (!drops && is_plain && !compiles_shapes(q.device())) {
    const std::optional<Tensor> mask =
        pass.mask.defined() ? std::optional<Tensor>(pass.mask) : std::nullopt;
    return joined(at::scaled_dot_product_attention(q, k, v, mask));
  }
  // The fused kernels of ATen draw dropout from a global stream, which no resume can restore
  // exactly; here it is a function of the element's coordinates.
  const double root = std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = q.matmul(k.transpose(-1, -2));
  scores = options.scale == 0.0 ? scores / root : scores * options.scale;
  if (options.softcap != 0.0) scores = (scores / options.softcap).tanh() * options.softcap;
  const Tensor allowed = allowed_keys(scores, options, pass.mask);
  if (allowed.defined()) {
    scores = scores.masked_fill(allowed.logical_not(), -std::numeric_limits<float>::infinity());
  }
  Tensor probabilities = softmax_with(scores, options.sinks);
  const bool hides_keys = options.causal || options.window != 0;
  if (hides_keys && pass.mask.defined()) {  // all keys of a query may be masked
    probabilities = at::where(allowed.any(-1, true), probabilities, 0.0);
  }
  if (drops) {
    probabilities = finetune::dropout(probabilities, options.dropout, *pass.dropout, options.layer,
                                      DropoutSite::kAttentionProbabilities, pass.layout.get());
  }
  return joined(probabilities.matmul(v));
}

Tensor plain_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options, const kernels::PassInputs& pass) {
  if (!options.block_sparse || query.size(1) <= options.block_sparse->longest_full()) {
    return full_attention(query, key, value, options, pass);
  }
  return block_sparse_attention({.query = query,
                                 .key = key,
                                 .value = value,
                                 .heads = options.heads,
                                 .mask = pass.mask,
                                 .layer = options.layer,
                                 .dropout_probability = options.dropout,
                                 .dropout = pass.dropout},
                                *options.block_sparse);
}

}  // namespace

namespace {

// Writes rows [1, n, C] after the first `length` rows of `store`, which grows by doubling.
void append(Tensor& store, int64_t length, const Tensor& rows) {
  const int64_t needed = length + rows.size(1);
  if (!store.defined() || store.size(1) < needed) {
    const int64_t room = std::max(needed, store.defined() ? 2 * store.size(1) : needed);
    const Tensor wider = at::empty({1, room, rows.size(2)}, rows.options());
    if (length > 0) wider.narrow(1, 0, length).copy_(store.narrow(1, 0, length));
    store = wider;
  }
  store.narrow(1, length, rows.size(1)).copy_(rows);
}

// Adds the keys and values of new tokens to those of their layer.
void append(const Projections& new_tokens, int64_t of_layer, KeyValueCache& cache) {
  const auto layer = static_cast<size_t>(of_layer);
  cache.keys.resize(std::max(cache.keys.size(), layer + 1));
  cache.values.resize(cache.keys.size());
  append(cache.keys[layer], cache.length, new_tokens.key.tensor);
  append(cache.values[layer], cache.length, new_tokens.value.tensor);
}

// Attention of new tokens [1, n, C], whose keys are in the cache already, to themselves and to all
// before them; keys and values are those of one layer.
Tensor attend_after(const Tensor& query, const AttentionOptions& options, int64_t of_layer,
                    const KeyValueCache& cache) {
  const auto layer = static_cast<size_t>(of_layer);
  const int64_t count = query.size(1);
  const Tensor key = cache.keys[layer].narrow(1, 0, cache.length + count);
  const Tensor value = cache.values[layer].narrow(1, 0, cache.length + count);
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  // The heads of the queries that share keys are rows of one matrix, so that no key is copied:
  // [1, kv, group * n, D].
  const Tensor q =
      by_head(query, options.heads).reshape({1, kv_heads, options.heads / kv_heads * count, -1});
  const Tensor k = by_head(key, kv_heads);
  const Tensor v = by_head(value, kv_heads);
  const double scale =
      options.scale == 0.0 ? 1.0 / std::sqrt(static_cast<double>(q.size(-1))) : options.scale;
  Tensor scores = q.matmul(k.transpose(-1, -2)).to(at::kFloat) * scale;
  scores = scores.unflatten(2, {-1, count});  // [1, kv, group, n, S]
  if (options.softcap != 0.0) scores = (scores / options.softcap).tanh() * options.softcap;
  const Tensor seen = keys_before(scores, cache.length, options);
  scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<float>::infinity());
  scores = softmax_with(scores.flatten(1, 2), options.sinks).unflatten(1, {kv_heads, -1});
  const Tensor probabilities = scores.to(v.scalar_type()).flatten(2, 3);
  return joined(probabilities.matmul(v).reshape({1, options.heads, count, -1}));
}

Value attend_all(Projections projections, AttentionOptions options, Pass& p,
                 std::optional<int64_t> cached, const Weight& sinks) {
  options.sinks = p.is_plain() ? p.leaf(sinks) : p.values(sinks);
  if (KeyValueCache* cache = p.options().cache) {
    FT_CHECK(!p.records() && options.causal, "a cache serves evaluation of causal models");
    if (!cached) append(projections, options.layer, *cache);
    if (cache->length > 0) {
      return {.tensor = attend_after(projections.query.tensor, options,
                                     cached.value_or(options.layer), *cache)};
    }
  }
  Value& query = projections.query;
  Value& key = projections.key;
  Value& value = projections.value;
  if (p.is_plain()) {
    return {.tensor = plain_attention(query.tensor, key.tensor, value.tensor, options, p.inputs())};
  }
  kernels::PassInputs inputs = p.inputs();
  if (p.is_read(query.tensor)) inputs.queries = p.options().read->layout;
  const kernels::Attended attended =
      kernels::fused_attention(query.tensor, key.tensor, value.tensor, options, inputs);
  const Value y =
      p.result(attended.context, query.slot || key.slot || value.slot || p.trains(sinks));
  if (!y.slot) {
    projections = {};  // frees them before the caller's full expression ends
    return y;
  }
  kernels::Attended kept = {.context = {}, .log_sum_exp = attended.log_sum_exp};
  if (kept.log_sum_exp.defined()) kept.context = attended.context;
  p.record(y, [&p, options, inputs, kept, sinks, q = std::move(query), k = std::move(key),
               v = std::move(value)](const Tensor& dy) mutable {
    const kernels::AttendedGradients gradients = kernels::fused_attention_backward(
        to_overwrite(std::exchange(q.tensor, {})), to_overwrite(std::exchange(k.tensor, {})),
        to_overwrite(std::exchange(v.tensor, {})), kept, dy, options, inputs);
    kept = {};
    give(q.slot, gradients.query);
    give(k.slot, gradients.key);
    give(v.slot, gradients.value);
    if (!sinks.defined()) return;
    p.add(sinks, gradients.sinks);
    p.complete({sinks});
  });
  return y;
}

}  // namespace

Value attend(Projections projections, const AttentionOptions& options, Pass& p,
             std::optional<int64_t> cached, const Weight& sinks) {
  projections.query = query_tokens(std::move(projections.query), options, p);
  return read_tokens(attend_all(std::move(projections), options, p, cached, sinks), options.layer,
                     p);
}

Value query_tokens(Value x, const AttentionOptions& options, Pass& p) {
  const KeyValueCache* const cache = p.options().cache;
  const bool is_after = cache != nullptr && cache->length > 0;  // attend_after() takes all
  if (is_after || !kernels::attends_fewer_queries(x.tensor, options, p.inputs())) return x;
  return read_tokens(std::move(x), options.layer, p);
}

FusedProjections::FusedProjections(const Scope& scope, int64_t inputs, int64_t queries,
                                   int64_t keys, bool has_bias, int64_t groups,
                                   const LinearNames& names)
    : queries_(queries),
      keys_(keys),
      groups_(groups),
      all_(scope, inputs, queries + 2 * keys, has_bias, names) {
  FT_CHECK(groups == 1 || queries == keys, "a group of heads has as many queries as keys");
}

Projections FusedProjections::operator()(Value x, Pass& p) const {
  Value all = all_(std::move(x), p);
  if (groups_ > 1) all = parts_together(std::move(all), groups_, 3, p);
  std::vector<Value> parts = split(std::move(all), {queries_, keys_, keys_}, p);
  return {.value = std::move(parts[2]), .key = std::move(parts[1]), .query = std::move(parts[0])};
}

Rotation make_rotation(const Tensor& positions, const Tensor& frequencies, double factor) {
  const Tensor angles = at::outer(positions.to(at::kFloat), frequencies);
  if (factor == 1.0) return {.cos = angles.cos(), .sin = angles.sin()};
  return {.cos = angles.cos() * factor, .sin = angles.sin() * factor};
}

namespace {

// Each head of x [B, T, heads * D] turned by the rotation, which autograd differentiates.
Tensor turned_plainly(const Tensor& x, int64_t head_size, const Rotation& rotation) {
  const Tensor all = x.unflatten(-1, {-1, head_size}).to(at::kFloat);
  const Tensor cos = rotation.cos.unsqueeze(1);
  const Tensor sin = rotation.sin.unsqueeze(1);
  const int64_t half = rotation.cos.size(-1);
  const Tensor first = all.narrow(-1, 0, half);
  const Tensor second = all.narrow(-1, half, half);
  const Tensor rest = all.narrow(-1, 2 * half, all.size(-1) - 2 * half);
  return at::cat({first * cos - second * sin, second * cos + first * sin, rest}, -1)
      .flatten(-2)
      .to(x.scalar_type());
}

// What turns heads, back and forth.
struct Turn {
  int64_t head_size;
  Rotation rotation;

  // Without a second tensor `key` is undefined. The tensors are moved into the list: another
  // reference to one would be a reason to copy it.
  [[nodiscard]] std::vector<Tensor> operator()(Tensor query, Tensor key, bool back) const {
    std::vector<Tensor> x;
    x.push_back(to_overwrite(std::move(query)));
    if (key.defined()) x.push_back(to_overwrite(std::move(key)));
    return kernels::fused_rotation(
        x, {.cos = rotation.cos, .sin = rotation.sin, .head_size = head_size, .back = back});
  }
};

}  // namespace

Rotation rotation_of(const Rotation& all, const Tensor& x, const Pass& p) {
  if (!p.is_read(x)) return all;
  const ReadTokens& read = *p.options().read;
  const Tensor& index = p.layout() ? read.index : read.layout->positions;  // rows of the rotation
  const Tensor scale =
      all.query_scale.defined() ? all.query_scale.index_select(0, index) : Tensor();
  return {.cos = all.cos.index_select(0, index),
          .sin = all.sin.index_select(0, index),
          .query_scale = scale};
}

// Queries and keys are turned together, and so are their gradients: the queries' gradient, which
// comes first, waits for the keys'.
Projections rope(Projections all, int64_t head_size, const Rotation& rotation, Pass& p) {
  Value& query = all.query;
  Value& key = all.key;
  if (key.tensor.defined() && p.is_read(query.tensor)) {
    Projections of_key = {.value = {}, .key = {}, .query = std::move(key)};
    key = rope(std::move(of_key), head_size, rotation, p).query;
    Projections of_query = {.value = {}, .key = {}, .query = std::move(query)};
    query = rope(std::move(of_query), head_size, rotation, p).query;
    return all;
  }
  if (p.is_plain()) {
    query = {.tensor = turned_plainly(query.tensor, head_size, rotation)};
    if (key.tensor.defined()) key = {.tensor = turned_plainly(key.tensor, head_size, rotation)};
    return all;
  }
  const Turn turn = {head_size, rotation_of(rotation, query.tensor, p)};
  const std::shared_ptr<Slot> of_query = std::move(query.slot);
  const std::shared_ptr<Slot> of_key = std::move(key.slot);
  std::vector<Tensor> turned =
      turn(std::exchange(query.tensor, {}), std::exchange(key.tensor, {}), false);
  query = p.result(std::move(turned[0]), of_query != nullptr);
  if (turned.size() > 1) key = p.result(std::move(turned[1]), of_key != nullptr);
  const auto waiting = std::make_shared<Tensor>();
  p.record(key, [turn, of_query, of_key, waiting](Tensor dy) {
    if (!waiting->defined()) return of_key->give(turn(std::move(dy), {}, true)[0]);
    std::vector<Tensor> gradients = turn(std::exchange(*waiting, {}), std::move(dy), true);
    of_query->give(std::move(gradients[0]));
    of_key->give(std::move(gradients[1]));
  });
  p.record(query, [turn, of_query, waits = of_key != nullptr, waiting](Tensor dy) {
    if (waits) {
      *waiting = std::move(dy);
    } else {
      of_query->give(turn(std::move(dy), {}, true)[0]);
    }
  });
  return all;
}

Projections rope_of_neighbours(Projections all, int64_t head_size, const Rotation& rotation,
                               Pass& p) {
  const int64_t rotated = 2 * rotation.cos.size(-1);
  all.key = in_halves(std::move(all.key), head_size, rotated, p);
  all.query = in_halves(std::move(all.query), head_size, rotated, p);
  return rope(std::move(all), head_size, rotation, p);
}

}  // namespace finetune::nn
