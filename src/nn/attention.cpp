// SPDX-License-Identifier: MIT
#include "finetune/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "finetune/base/error.h"

namespace finetune::nn {
namespace {

Tensor by_head(const Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, -1}).transpose(1, 2);  // [B, H, T, D]
}

Tensor joined(const Tensor& by_heads) { return by_heads.transpose(1, 2).flatten(2); }

// One query head after the other sees its key head: [B, kv, T, D] -> [B, H, T, D].
Tensor for_each_head(const Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1, -1}).flatten(1, 2);
}

Tensor full_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                      const AttentionOptions& options, const kernels::PassInputs& pass) {
  const int64_t kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  const Tensor q = by_head(query, options.heads);
  const Tensor k = for_each_head(by_head(key, kv_heads), options.heads);
  const Tensor v = for_each_head(by_head(value, kv_heads), options.heads);
  // ATen masks by operators that the meta device lacks; shapes do not depend on masks.
  if (q.is_meta()) return joined(q.matmul(k.transpose(-1, -2)).softmax(-1).matmul(v));
  if (!pass.dropout || options.dropout == 0.0) {
    const std::optional<Tensor> mask =
        pass.mask.defined() ? std::optional<Tensor>(pass.mask) : std::nullopt;
    return joined(at::scaled_dot_product_attention(q, k, v, mask, 0.0, options.causal));
  }
  // The fused kernels of ATen draw dropout from a global stream, which no resume can restore
  // exactly; here it is a function of the element's coordinates.
  FT_CHECK(!options.causal, "causal attention has no dropout yet");
  Tensor scores = q.matmul(k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(-1)));
  if (pass.mask.defined()) {
    scores = scores.masked_fill(pass.mask.logical_not(), -std::numeric_limits<float>::infinity());
  }
  const Tensor probabilities =
      finetune::dropout(scores.softmax(-1), options.dropout, *pass.dropout, options.layer,
                        DropoutSite::kAttentionProbabilities, pass.layout.get());
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

bool has_kernel(const AttentionOptions& options) {
  return !options.causal && (options.kv_heads == 0 || options.kv_heads == options.heads);
}

// [T, D/2] angles in float32.
Tensor rotations(const Tensor& x, int64_t tokens, int64_t size, double base) {
  const auto options = x.options().dtype(at::kFloat);
  const Tensor exponents = at::arange(0, size, 2, options) / static_cast<double>(size);
  return at::outer(at::arange(tokens, options), at::pow(base, exponents).reciprocal());
}

}  // namespace

Value attend(Projections projections, const AttentionOptions& options, Pass& p) {
  Value& query = projections.query;
  Value& key = projections.key;
  Value& value = projections.value;
  if (p.is_plain()) {
    return {.tensor = plain_attention(query.tensor, key.tensor, value.tensor, options, p.inputs())};
  }
  if (!has_kernel(options)) {
    FT_CHECK(!p.layout(), "attention without a kernel takes padded rows");
    return p.differentiate({std::move(query), std::move(key), std::move(value)}, {},
                           [options, pass = p.inputs()](const std::vector<Tensor>& in) {
                             return full_attention(in[0], in[1], in[2], options, pass);
                           });
  }
  const kernels::HeadAttention heads = {.heads = options.heads,
                                        .layer = options.layer,
                                        .dropout = options.dropout,
                                        .block_sparse = options.block_sparse};
  const kernels::Attended attended =
      kernels::fused_attention(query.tensor, key.tensor, value.tensor, heads, p.inputs());
  const Value y = p.result(attended.context);
  if (!p.records()) {
    projections = {};  // frees them before the caller's full expression ends
    return y;
  }
  kernels::Attended kept = {.context = {}, .log_sum_exp = attended.log_sum_exp};
  if (kept.log_sum_exp.defined()) kept.context = attended.context;
  p.record(y, [&p, heads, kept, q = std::move(query), k = std::move(key),
               v = std::move(value)](const Tensor& dy) mutable {
    const Tensor dq = to_overwrite(std::exchange(q.tensor, {}));
    const Tensor dk = to_overwrite(std::exchange(k.tensor, {}));
    const Tensor dv = to_overwrite(std::exchange(v.tensor, {}));
    kernels::fused_attention_backward(dq, dk, dv, kept, dy, heads, p.inputs());
    kept = {};
    q.slot->give(dq);
    k.slot->give(dk);
    v.slot->give(dv);
  });
  return y;
}

Value rope(Value x, int64_t heads, double base, Pass& p) {
  return p.differentiate({std::move(x)}, {}, [heads, base](const std::vector<Tensor>& in) {
    const Tensor q = by_head(in[0], heads);  // [B, H, T, D]
    const Tensor angles = rotations(q, q.size(2), q.size(3), base);
    const Tensor both = at::cat({angles, angles}, -1);
    const std::vector<Tensor> halves = q.chunk(2, -1);
    const Tensor turned = at::cat({-halves[1], halves[0]}, -1);
    return joined(q * both.cos().to(q.scalar_type()) + turned * both.sin().to(q.scalar_type()));
  });
}

}  // namespace finetune::nn
