// SPDX-License-Identifier: MIT
#include "finetune/nn/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "finetune/base/model_files.h"

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
  y.rebuild = rebuilt_once(std::move(y.rebuild));  // several products read it
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

StackedParameter stacked_parameter(const std::string& weight) {
  constexpr std::string_view kGateUp = "input_linear.weight", kDown = "output_linear.weight";
  constexpr std::string_view kExperts = ".experts.";
  const auto renamed = [&](std::string_view end, const char* name) {
    return weight.substr(0, weight.size() - end.size()) + name;
  };
  if (weight.ends_with(kGateUp)) return {.name = renamed(kGateUp, "experts.gate_up_proj")};
  if (weight.ends_with(kDown)) return {.name = renamed(kDown, "experts.down_proj")};
  if (!is_of_one_expert(weight)) {
    const bool is_bare =
        weight.ends_with("experts.gate_up_proj") || weight.ends_with("experts.down_proj");
    return {.name = weight, .is_transposed = is_bare};
  }
  const size_t module = weight.find(kExperts) + kExperts.size();
  const bool is_down = weight.ends_with(".down_proj.weight");
  return {.name = weight.substr(0, module) + (is_down ? "down_proj" : "gate_up_proj"),
          .expert = std::stoll(weight.substr(module)),
          .is_up = weight.ends_with(".up_proj.weight")};
}

std::string StackedParameter::adapter(bool is_inner) const {
  return name.substr(0, name.rfind('.')) + (is_inner ? ".base_layer" : "");
}

std::string StackedParameter::other() const {
  return name.substr(0, name.rfind('.')) + (is_gate_up() ? ".down_proj" : ".gate_up_proj");
}

MixtureOfExperts::MixtureOfExperts(const Scope& scope, const ExpertsOptions& options)
    : options_(options) {
  if (!options.router_comes_last) make_router(scope);
  make_experts(scope);
  if (options.router_comes_last) make_router(scope);
}

void MixtureOfExperts::make_router(const Scope& scope) {
  const Scope own = scope / options_.router;
  router_ = own.parameter("weight", {options_.experts, options_.size});
  if (options_.router_has_bias) router_bias_ = own.parameter("bias", {options_.experts});
}

void MixtureOfExperts::make_experts(const Scope& scope) {
  const int64_t size = options_.size;
  const int64_t intermediate = options_.intermediate;
  if (options_.stack) {
    const ExpertsOptions::Stack& stack = *options_.stack;
    const auto make = [&](const char* name, int64_t inputs, int64_t outputs, bool has_bias) {
      return StackedLinear(scope, name,
                           {.count = options_.experts,
                            .inputs = inputs,
                            .outputs = outputs,
                            .is_transposed = stack.is_transposed,
                            .has_bias = has_bias});
    };
    StackedLinear gate_up = make(stack.gate_up, size, 2 * intermediate, stack.has_bias);
    StackedLinear down = make(stack.down, intermediate, size, /*has_bias=*/false);
    stacks_.emplace(std::move(gate_up), std::move(down));
    if (stack.has_bias) {
      down_bias_ =
          scope.parameter(std::string(stack.down) + StackedLinear::kBias, {options_.experts, size});
    }
    return make_adapters(scope);
  }
  const Scope all = (scope / "experts").without_adapters();
  for (int64_t i = 0; i < options_.experts; ++i) {
    const auto make = [&](const char* name, int64_t inputs, int64_t outputs) {
      return Linear(all / i / name, inputs, outputs, /*has_bias=*/false);
    };
    Linear gate = make("gate_proj", size, intermediate);
    Linear up = make("up_proj", size, intermediate);
    Linear down = make("down_proj", intermediate, size);
    experts_.push_back({std::move(gate), std::move(up), std::move(down)});
  }
  make_adapters(scope);
}

// PEFT wraps the experts for each of their parameters, in the order of these.
void MixtureOfExperts::make_adapters(const Scope& scope) {
  const ExpertsOptions::Stack stack = options_.stack.value_or(
      ExpertsOptions::Stack{.gate_up = "experts.gate_up_proj", .down = "experts.down_proj"});
  const StackedParameter gate_up = stacked_parameter(stack.gate_up);
  const StackedParameter down = stacked_parameter(stack.down);
  const std::optional<LoraSettings> for_gate_up = scope.lora_of_parameter(gate_up.name);
  const std::optional<LoraSettings> for_down = scope.lora_of_parameter(down.name);
  if (for_gate_up) {
    const Scope module = scope / gate_up.adapter(/*is_inner=*/for_down.has_value());
    if (stacks_) {
      stacks_->gate_up.adapt(module, *for_gate_up);
    } else {
      of_gate_up_.emplace(module, *for_gate_up,
                          StackOptions{.count = options_.experts,
                                       .inputs = options_.size,
                                       .outputs = 2 * options_.intermediate});
    }
  }
  if (!for_down) return;
  const Scope module = scope / down.adapter(/*is_inner=*/false);
  if (stacks_) {
    stacks_->down.adapt(module, *for_down);
  } else {
    of_down_.emplace(
        module, *for_down,
        StackOptions{
            .count = options_.experts, .inputs = options_.intermediate, .outputs = options_.size});
  }
}

Routes MixtureOfExperts::route(const Value& rows, Pass& p) const {
  std::vector<Weight> weights = {router_};
  if (router_bias_.defined()) weights.push_back(router_bias_);
  const Value probabilities = p.differentiate({rows}, weights, [](const std::vector<Tensor>& in) {
    const auto bias = in.size() > 2 ? std::optional<Tensor>(in[2].to(at::kFloat)) : std::nullopt;
    return at::linear(in[0].to(at::kFloat), in[1].to(at::kFloat), bias).softmax(-1);
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

MixtureOfExperts::Halves MixtureOfExperts::halves(Turn& turn, const Value& x, Pass& p) const {
  Halves both;
  if (stacks_) {
    Value all = stacks_->gate_up(x, static_cast<int64_t>(turn.number), turn.of_gate_up, p);
    if (options_.stack->alternates) {
      all = parts_together(std::move(all), options_.intermediate, 2, p);
    }
    const int64_t half = options_.intermediate;
    std::vector<Value> parts = split(std::move(all), {half, half}, p);
    both = {.gate = std::move(parts[0]), .up = std::move(parts[1])};
  } else {
    const Expert& expert = experts_[turn.number];
    both.gate = expert.gate(x, p);
    both.up = expert.up(x, p);
    if (of_gate_up_ && !p.options().without_adapter) {
      const int64_t half = options_.intermediate;
      std::vector<Value> parts =
          split((*of_gate_up_)(x, static_cast<int64_t>(turn.number), turn.of_gate_up, p),
                {half, half}, p);
      both.gate = add({std::move(both.gate), std::move(parts[0])}, p);
      both.up = add({std::move(both.up), std::move(parts[1])}, p);
    }
  }
  if (options_.limit == 0.0) return both;
  both.gate = clamped(std::move(both.gate), {.most = options_.limit}, p);
  both.up = clamped(std::move(both.up),
                    {.least = -options_.limit, .most = options_.limit, .added = 1.0}, p);
  return both;
}

Value MixtureOfExperts::down(Turn& turn, Value x, Pass& p) const {
  const auto number = static_cast<int64_t>(turn.number);
  if (stacks_) return stacks_->down(std::move(x), number, turn.of_down, p);
  const Linear& own = experts_[turn.number].down;
  if (!of_down_ || p.options().without_adapter) return own(std::move(x), p);
  Value y = own(x, p);
  return add({std::move(y), (*of_down_)(std::move(x), number, turn.of_down, p)}, p);
}

// Of each token the sum over its experts of share * bias: shares are of the rows before the product
// down, to which the biases are added.
Value MixtureOfExperts::with_biases(Value sum, const Routes& routes, Pass& p) const {
  Value biases = p.differentiate({routes.shares}, {down_bias_}, [&](const std::vector<Tensor>& in) {
    const Tensor none = at::zeros({in[0].size(0), options_.experts}, in[0].options());
    return none.scatter(1, routes.experts, in[0]).matmul(in[1].to(at::kFloat));
  });
  return add({std::move(sum), to_precision(std::move(biases), p)}, p);
}

// Those that this expert alone has.
std::vector<Weight> MixtureOfExperts::weights_of(size_t number) const {
  if (stacks_) return {};
  const Expert& expert = experts_[number];
  return {expert.gate.weight(), expert.up.weight(), expert.down.weight()};
}

Value MixtureOfExperts::operator()(Value x, Pass& p) const {
  const std::vector<int64_t> sizes = x.tensor.sizes().vec();
  const Value rows = reshaped(x, {-1, sizes.back()}, p);
  x = {};
  const Routes routes = route(rows, p);
  const std::vector<Tensor> positions = positions_of(routes.experts, options_.experts);
  Value sum;
  Turn turn;
  std::vector<Weight> unused;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i].numel() == 0) {
      for (const Weight& weight : weights_of(i)) {
        if (p.trains(weight)) unused.push_back(weight);
      }
      continue;
    }
    turn.number = i;
    const Tensor tokens = positions[i].div(options_.per_token, "floor");
    auto [gate, up] = halves(turn, taken(rows, tokens, p), p);
    Value y = down(turn,
                   weighted(std::move(gate), std::move(up), routes.shares, positions[i],
                            options_.activation, p),
                   p);
    if (!sum.tensor.defined()) {
      sum.tensor = at::zeros({rows.tensor.size(0), y.tensor.size(1)}, y.tensor.options());
    }
    sum = put(std::move(sum), std::move(y), tokens, p);
  }
  if (down_bias_.defined()) sum = with_biases(std::move(sum), routes, p);
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
