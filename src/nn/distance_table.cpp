// SPDX-License-Identifier: MIT
// The relative positions of disentangled attention: the map from distances to rows of the table,
// the table and its projections.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "finetune/kernels/kernels_in_use.h"
#include "finetune/nn/disentangled_attention.h"
#include "finetune/nn/elementwise.h"

namespace finetune::nn {
namespace {

Tensor bucketed(const Tensor& distance, const DistanceOptions& options) {
  // In float32 and in this order of operations, so that buckets are rounded as in transformers.
  const int64_t middle = options.span / 2;
  const Tensor size =
      at::where(distance.abs().lt(middle), at::full_like(distance, middle - 1), distance.abs());
  const Tensor range = at::tensor(
      static_cast<float>(static_cast<double>(options.longest - 1) / static_cast<double>(middle)));
  const Tensor far = at::ceil(at::log(size / middle) / at::log(range) * (middle - 1)) + middle;
  const Tensor bucket = at::where(size.le(middle), distance.to(at::kFloat), far * distance.sign());
  return bucket.to(at::kLong);
}

// The row of each distance of sequences of at most `tokens`, on the CPU.
Tensor rows_of_distances(const DistanceOptions& options, int64_t tokens) {
  Tensor distance = at::arange(1 - tokens, tokens, at::kLong);
  if (options.has_buckets) distance = bucketed(distance, options);
  return (distance + options.span).clamp(0, 2 * options.span - 1);
}

}  // namespace

Distances make_distances(const DistanceOptions& options, int64_t tokens, c10::Device device) {
  const auto integers = at::TensorOptions(at::kLong);
  if (device.is_meta()) {
    return {tokens, at::empty({2 * tokens - 1}, integers.device(device)),
            at::empty({2 * options.span}, integers.device(device))};
  }
  const Tensor row = rows_of_distances(options, tokens);
  return {tokens, uploaded(row, device), uploaded(at::bincount(row, {}, 2 * options.span), device)};
}

namespace {

// Applies dropout to the table [P, C] of one layer.
Value drop_distances(Value table, double probability, int64_t layer, Pass& p) {
  const std::optional<DropoutStream>& given = p.inputs().dropout;
  if (!given || probability == 0.0) return table;
  DropoutStream stream = *given;
  stream.first_position = 0;
  const auto masked = [=](const Tensor& x) {
    return finetune::dropout(x.unsqueeze(0), probability, stream, layer,
                             DropoutSite::kRelativePositions)
        .squeeze(0);
  };
  const Value y = p.result(masked(table.tensor), table.slot != nullptr);
  p.record(y, [masked, dx = table.slot](const Tensor& dy) { dx->give(masked(dy)); });
  return y;
}

}  // namespace

Distances recorded_distances(const std::function<Tensor(int64_t tokens)>& rows_of, int64_t tokens,
                             c10::Device device) {
  constexpr int64_t kMostTokens = 1 << 16;
  const Tensor all = rows_of(kMostTokens).to(device);
  return {tokens, all.narrow(0, kMostTokens - tokens, 2 * tokens - 1), {}};
}

DistanceTable::DistanceTable(const Scope& scope, int64_t size,
                             const std::optional<DistanceOptions>& options,
                             std::optional<double> epsilon)
    : options_(options) {
  if (options) rows_.emplace(scope / "rel_embeddings", 2 * options->span, size);
  if (epsilon) norm_.emplace(scope / "LayerNorm", size, *epsilon);
}

DistanceRows DistanceTable::operator()(int64_t tokens, c10::Device device, Pass& p) const {
  if (!rows_) return {.rows = {}, .distances = make_distances({.span = tokens}, tokens, device)};
  const auto integers = at::TensorOptions(at::kLong).device(device);
  Value rows = (*rows_)(at::arange(2 * options_->span, integers), p);
  if (norm_) rows = (*norm_)(rows, p);
  const auto rows_of = [&](int64_t most) { return rows_of_distances(*options_, most); };
  return {.rows = to_precision(std::move(rows), p),
          .distances = is_recorded(p, device) ? recorded_distances(rows_of, tokens, device)
                                              : make_distances(*options_, tokens, device)};
}

DisentangledAttention::DisentangledAttention(const Scope& scope, int64_t size,
                                             const DisentangledOptions& options,
                                             const DistanceTerms& terms)
    : options_(options),
      terms_(terms),
      query_(scope / "query_proj", size, size),
      key_(scope / "key_proj", size, size),
      value_(scope / "value_proj", size, size) {
  if (terms.is_shared) return;
  if (terms.has_keys) distance_key_.emplace(scope / "pos_key_proj", size, size);
  if (terms.has_queries) distance_query_.emplace(scope / "pos_query_proj", size, size);
}

DistanceProjections DisentangledAttention::project(const Value& table, Pass& p) const {
  if (!terms_.has_keys && !terms_.has_queries) return {};
  const Value rows = drop_distances(table, terms_.dropout, options_.layer, p);
  const auto projected = [&](const Linear& of_tokens, const std::optional<Linear>& own) {
    return own ? own->of_table(rows, p) : of_tokens.again(rows, p);
  };
  DistanceProjections distances;
  if (terms_.has_keys) distances.key = projected(key_, distance_key_);
  if (terms_.has_queries) distances.query = projected(query_, distance_query_);
  return distances;
}

Value DisentangledAttention::operator()(const Value& x, const DistanceRows& table, Pass& p) const {
  const Linear::SharedInput shared(x, {&value_, &key_, &query_}, p);
  Projections tokens = {
      .value = value_(x, shared, p), .key = key_(x, shared, p), .query = query_(x, shared, p)};
  DistanceProjections distances = project(table.rows, p);
  return attend(std::move(tokens), std::move(distances), table.distances, options_, p);
}

}  // namespace finetune::nn
