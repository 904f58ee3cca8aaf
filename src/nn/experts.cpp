// SPDX-License-Identifier: MIT
#include "finetune/nn/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

namespace finetune::nn {
namespace {

Value reshaped(const Value& x, const std::vector<int64_t>& sizes, Pass& p) {
  Value y = p.result(x.tensor.reshape(sizes), x.slot != nullptr);
  if (x.rebuild) y.rebuild = [whole = x.rebuild, sizes] { return whole().reshape(sizes); };
  p.record(y, [dx = x.slot, before = x.tensor.sizes().vec()](const Tensor& dy) {
    dx->give(dy.reshape(before));
  });
  return y;
}

// Rows of x [N, C] by their numbers, each at most once. Can be taken again.
Value taken(const Value& x, const Tensor& tokens, Pass& p) {
  Value y = p.result(x.tensor.index_select(0, tokens), x.slot != nullptr);
  if (p.is_plain() || !p.records()) return y;
  if (x.rebuild) {
    y.rebuild = [whole = x.rebuild, tokens] { return whole().index_select(0, tokens); };
  } else {
    y.rebuild = [whole = x.tensor, tokens] { return whole.index_select(0, tokens); };
  }
  p.record(y, [tokens, dx = x.slot, sizes = x.tensor.sizes().vec(),
               type = x.tensor.scalar_type()](const Tensor& dy) {
    dx->give_sum(type, [&](const Tensor& sum) {
      const Tensor whole = sum.defined() ? sum : at::zeros(sizes, dy.options().dtype(type));
      whole.index_add_(0, tokens, dy.to(type));
      return whole;
    });
  });
  return y;
}

// f(gate) * up * shares[positions] of [n, F] and shares [N, k], whose positions are those of one
// row after the other. Keeps gate and up.
Value weighted(Value gate, Value up, const Value& shares, const Tensor& positions, Activation f,
               Pass& p) {
  const Tensor factors = shares.tensor.flatten().index_select(0, positions).unsqueeze(-1);
  if (p.is_plain()) return {.tensor = f(gate.tensor) * up.tensor * factors};
  const Tensor own = factors.to(gate.tensor.scalar_type());
  const auto product = [f, own, gate = gate.tensor, up = up.tensor] {
    return kernels::fused_gated_product(gate, up, f).mul_(own);
  };
  Value y = p.result(product(), gate.slot || up.slot || shares.slot);
  if (!y.slot) return y;
  y.rebuild = product;
  p.record(y, [f, own, positions, of_shares = shares.slot, sizes = shares.tensor.sizes().vec(),
               gate = std::move(gate), up = std::move(up)](Tensor gradient) mutable {
    const Tensor dy = to_overwrite(std::move(gradient));
    if (of_shares) {
      const Tensor activated = kernels::fused_gated_product(gate.tensor, up.tensor, f);
      const Tensor of_rows = activated.mul_(dy).sum(-1, /*keepdim=*/false, at::kFloat);
      of_shares->give_sum(at::kFloat, [&](const Tensor& sum) {
        const Tensor all = sum.defined() ? sum : at::zeros(sizes, of_rows.options());
        all.view(-1).index_add_(0, positions, of_rows);
        return all;
      });
    }
    if (!gate.slot && !up.slot) return;
    const Tensor of_gate = to_overwrite(std::exchange(gate.tensor, {}));
    const Tensor of_up = to_overwrite(std::exchange(up.tensor, {}));
    kernels::fused_gated_product_backward(of_gate, of_up, f, dy.mul_(own).contiguous());
    give(gate.slot, of_gate);
    give(up.slot, of_up);
  });
  return y;
}

// Adds the rows y to those of `sum`, in its memory.
Value put(Value sum, Value y, const Tensor& tokens, Pass& p) {
  if (p.is_plain()) return {.tensor = sum.tensor.index_add(0, tokens, y.tensor)};
  sum.tensor.index_add_(0, tokens, y.tensor);
  const Value all = p.result(sum.tensor, sum.slot || y.slot);
  p.record(all, [tokens, of_sum = sum.slot, of_y = y.slot,
                 type = y.tensor.scalar_type()](const Tensor& dy) {
    give(of_y, dy.index_select(0, tokens).to(type));
    give(of_sum, dy);
  });
  return all;
}

// The numbers of the rows [N, k] that each expert computes, one row after the other.
std::vector<Tensor> positions_of(const Tensor& experts, int64_t count) {
  const Tensor all = experts.flatten();
  const Tensor order = std::get<1>(at::sort(all, /*stable=*/true, /*dim=*/0, /*descending=*/false));
  std::vector<Tensor> positions;
  if (all.is_meta()) {  // a dry run, as if each had the same share
    int64_t first = 0;
    for (int64_t i = 1; i <= count; ++i) {
      const int64_t end = all.numel() * i / count;
      positions.push_back(order.narrow(0, first, end - first));
      first = end;
    }
    return positions;
  }
  const Tensor counts = at::bincount(all, {}, count).cpu();
  int64_t first = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = counts[i].item<int64_t>();
    positions.push_back(order.narrow(0, first, own));
    first += own;
  }
  return positions;
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const Scope& scope, const ExpertsOptions& options)
    : options_(options) {
  const auto make_router = [&] {
    router_ = (scope / "gate").parameter("weight", {options.experts, options.size});
  };
  if (!options.router_comes_last) make_router();
  const Scope all = (scope / "experts").without_adapters();
  for (int64_t i = 0; i < options.experts; ++i) {
    const auto make = [&](const char* name, int64_t inputs, int64_t outputs) {
      return Linear(all / i / name, inputs, outputs, /*has_bias=*/false);
    };
    Linear gate = make("gate_proj", options.size, options.intermediate);
    Linear up = make("up_proj", options.size, options.intermediate);
    Linear down = make("down_proj", options.intermediate, options.size);
    experts_.push_back({std::move(gate), std::move(up), std::move(down)});
  }
  if (options.router_comes_last) make_router();
}

Routes MixtureOfExperts::route(const Value& rows, Pass& p) const {
  const Value probabilities = p.differentiate({rows}, {router_}, [](const std::vector<Tensor>& in) {
    return at::linear(in[0].to(at::kFloat), in[1].to(at::kFloat)).softmax(-1);
  });
  const Tensor order = std::get<1>(
      at::sort(probabilities.tensor.detach(), /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  const Tensor chosen = order.narrow(1, 0, options_.per_token).contiguous();
  Value shares = p.differentiate(
      {probabilities}, {}, [chosen, all = options_.normalizes](const std::vector<Tensor>& in) {
        const Tensor own = in[0].gather(1, chosen);
        return all ? own / own.sum(-1, /*keepdim=*/true) : own;
      });
  return {.shares = std::move(shares), .experts = chosen};
}

Value MixtureOfExperts::computed(const Expert& expert, const Value& rows, const Value& shares,
                                 const Tensor& positions, const Tensor& tokens, Pass& p) const {
  const Value x = taken(rows, tokens, p);
  Value gate = expert.gate(x, p);
  Value up = expert.up(x, p);
  return expert.down(
      weighted(std::move(gate), std::move(up), shares, positions, options_.activation, p), p);
}

Value MixtureOfExperts::operator()(Value x, Pass& p) const {
  const std::vector<int64_t> sizes = x.tensor.sizes().vec();
  const Value rows = reshaped(x, {-1, sizes.back()}, p);
  x = {};
  const Routes routes = route(rows, p);
  const std::vector<Tensor> positions = positions_of(routes.experts, options_.experts);
  Value sum;
  std::vector<Weight> unused;
  for (size_t i = 0; i < experts_.size(); ++i) {
    if (positions[i].numel() == 0) {
      for (const Linear* part : {&experts_[i].gate, &experts_[i].up, &experts_[i].down}) {
        if (p.trains(part->weight())) unused.push_back(part->weight());
      }
      continue;
    }
    const Tensor tokens = positions[i].div(options_.per_token, "floor");
    Value y = computed(experts_[i], rows, routes.shares, positions[i], tokens, p);
    if (!sum.tensor.defined()) {
      sum.tensor = at::zeros({rows.tensor.size(0), y.tensor.size(1)}, y.tensor.options());
    }
    sum = put(std::move(sum), std::move(y), tokens, p);
  }
  Value result = reshaped(sum, sizes, p);
  if (unused.empty()) return result;
  const Value y = p.result(result.tensor, result.slot != nullptr);
  p.record(y, [&p, unused, dx = result.slot](Tensor dy) {
    for (const Weight& weight : unused) {
      p.options().parameters->gradients().open({weight.id()});
      p.complete({weight});
    }
    dx->give(std::move(dy));
  });
  return y;
}

}  // namespace finetune::nn
