// SPDX-License-Identifier: MIT
#include "finetune/nn/recurrent.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "finetune/base/error.h"
#include "finetune/kernels/delta_rule.h"
#include "finetune/nn/feed_forward.h"

namespace finetune::nn {
namespace {

kernels::TokenRows token_rows(const Tensor& x, const Pass& p) {
  return {.tokens = x.size(-2), .layout = p.layout().get()};
}

// An entry of the cache, [..] of zeros at first.
Tensor& entry_of(std::vector<Tensor>& entries, int64_t layer, at::IntArrayRef sizes,
                 const Tensor& like) {
  const auto index = static_cast<size_t>(layer);
  if (entries.size() <= index) entries.resize(index + 1);
  if (!entries[index].defined()) {
    entries[index] = at::zeros(sizes, like.options().dtype(at::kFloat));
  }
  return entries[index];
}

}  // namespace

ShortConvolution::ShortConvolution(const Scope& scope, int64_t columns, int64_t size, bool has_bias,
                                   bool has_silu, int64_t layer)
    : weight_(scope.parameter("weight", {columns, 1, size})), has_silu_(has_silu), layer_(layer) {
  if (has_bias) bias_ = scope.parameter("bias", {columns});
}

Value ShortConvolution::operator()(Value x, Pass& p) const {
  kernels::ShortConvolution convolution = {.has_silu = has_silu_,
                                           .tokens = token_rows(x.tensor, p)};
  if (p.is_plain()) {
    convolution.weight = p.leaf(weight_).squeeze(1);
    convolution.bias = p.leaf(bias_);
    return {.tensor = kernels::short_convolution_plainly(x.tensor, convolution, {})};
  }
  const auto with_values = [this, &p, convolution] {
    kernels::ShortConvolution all = convolution;
    all.weight = p.values(weight_).squeeze(1);
    all.bias = p.values(bias_);
    return all;
  };
  Tensor before;
  if (KeyValueCache* cache = p.options().cache) {
    const int64_t columns = x.tensor.size(-1);
    const int64_t kept = weight_.size(2) - 1;
    Tensor& last = entry_of(cache->last_inputs, layer_, {kept, columns}, x.tensor);
    before = last;
    last = at::cat({last, x.tensor.view({-1, columns}).to(at::kFloat)});
    last = last.narrow(0, last.size(0) - kept, kept).clone();
  }
  const bool trains = p.trains(weight_) || p.trains(bias_);
  const Value y = p.result(kernels::fused_short_convolution(x.tensor, with_values(), before),
                           trains || x.slot != nullptr);
  p.record(y, [this, &p, with_values, x = std::move(x)](const Tensor& dy) {
    const kernels::ShortConvolutionGradients all =
        kernels::fused_short_convolution_backward(dy.contiguous(), x.tensor, with_values());
    if (p.trains(weight_)) p.add(weight_, all.weight.unsqueeze(1));
    if (p.trains(bias_)) p.add(bias_, all.bias);
    give(x.slot, all.input);
    p.complete({weight_, bias_});
  });
  return y;
}

GatedConvolution::GatedConvolution(const Scope& scope, int64_t hidden, int64_t size, bool has_bias,
                                   int64_t layer)
    : convolution_(scope / "conv", hidden, size, has_bias, /*has_silu=*/false, layer),
      in_(scope / "in_proj", hidden, 3 * hidden, has_bias),
      out_(scope / "out_proj", hidden, hidden, has_bias) {}

Value GatedConvolution::operator()(Value x, Pass& p) const {
  const int64_t hidden = x.tensor.size(-1);
  std::vector<Value> parts =
      split(in_(zero_padding(std::move(x), p), p), {hidden, hidden, hidden}, p);
  Value y = convolution_(product(std::move(parts[0]), std::move(parts[2]), p), p);
  return out_(to_precision(product(std::move(parts[1]), std::move(y), p), p), p);
}

GatedDeltaNet::GatedDeltaNet(const Scope& scope, const DeltaNetOptions& o, int64_t layer)
    : options_(o),
      layer_(layer),
      dt_bias_(scope.parameter("dt_bias", {o.heads})),
      a_log_(scope.parameter("A_log", {o.heads})),
      convolution_(scope / "conv1d", 2 * o.key_heads * o.key_size + o.heads * o.value_size,
                   o.convolution, /*has_bias=*/false, /*has_silu=*/true, layer),
      norm_(scope / "norm", o.value_size, o.epsilon),
      out_(scope / "out_proj", o.heads * o.value_size, o.hidden, false),
      mixed_(scope / "in_proj_qkv", o.hidden, 2 * o.key_heads * o.key_size + o.heads * o.value_size,
             false),
      z_(scope / "in_proj_z", o.hidden, o.heads * o.value_size, false),
      b_(scope / "in_proj_b", o.hidden, o.heads, false),
      a_(scope / "in_proj_a", o.hidden, o.heads, false) {}

Value GatedDeltaNet::operator()(Value x, Pass& p) const {
  x = zero_padding(std::move(x), p);
  Value mixed = convolution_(mixed_(x, p), p);
  Value z = z_(x, p);
  Value b = b_(x, p);
  Value a = a_(std::move(x), p);
  Value y = ruled(std::move(mixed), std::move(a), std::move(b), p);
  y = joined_heads(norm_(split_heads(std::move(y), options_.heads, p), p), p);
  return out_(gated(to_precision(std::move(z), p), to_precision(std::move(y), p), kernels::silu, p),
              p);
}

// o of the gated delta rule. Keeps its inputs; states are computed again.
Value GatedDeltaNet::ruled(Value mixed, Value a, Value b, Pass& p) const {
  const kernels::DeltaRule shape = {.key_heads = options_.key_heads,
                                    .key_size = options_.key_size,
                                    .tokens = token_rows(mixed.tensor, p)};
  const auto rule_of = [this, &p, shape](const Value& m, const Value& of_a, const Value& of_b) {
    kernels::DeltaRule rule = shape;
    rule.mixed = m.tensor;
    rule.a = of_a.tensor.to(m.tensor.scalar_type()).contiguous();
    rule.b = of_b.tensor.to(m.tensor.scalar_type()).contiguous();
    rule.a_log = p.is_plain() ? p.leaf(a_log_) : p.values(a_log_);
    rule.dt_bias = p.is_plain() ? p.leaf(dt_bias_) : p.values(dt_bias_);
    return rule;
  };
  const kernels::DeltaRule rule = rule_of(mixed, a, b);
  if (p.is_plain()) return {.tensor = kernels::delta_rule_plainly(rule, {})};
  Tensor state;
  if (KeyValueCache* cache = p.options().cache) {
    FT_CHECK(!p.records(), "a cache serves evaluation");
    state = entry_of(cache->states, layer_,
                     {options_.heads, options_.key_size, options_.value_size}, mixed.tensor);
  }
  const bool trains = p.trains(a_log_) || p.trains(dt_bias_);
  const Value y =
      p.result(kernels::fused_delta_rule(rule, state), trains || mixed.slot || a.slot || b.slot);
  p.record(y, [this, &p, rule_of, mixed = std::move(mixed), a = std::move(a),
               b = std::move(b)](const Tensor& dy) {
    const kernels::DeltaRuleGradients all = kernels::fused_delta_rule_backward(
        rule_of(mixed, a, b), dy.contiguous().to(mixed.tensor.scalar_type()));
    give(mixed.slot, all.mixed);
    give(a.slot, all.a.to(a.tensor.scalar_type()));
    give(b.slot, all.b.to(b.tensor.scalar_type()));
    if (p.trains(a_log_)) p.add(a_log_, all.a_log);
    if (p.trains(dt_bias_)) p.add(dt_bias_, all.dt_bias);
    p.complete({a_log_, dt_bias_});
  });
  return y;
}

}  // namespace finetune::nn
