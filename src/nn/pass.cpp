// SPDX-License-Identifier: MIT
#include "finetune/nn/pass.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "finetune/base/error.h"
#include "finetune/tensor/backward.h"
#include "nn/stowed_tensor.h"

namespace finetune::nn {
namespace {

// What differentiate() keeps for the backward pass: an autograd graph of one function.
struct LocalGraph {
  Tensor result;
  std::vector<Tensor> leaves;  // inputs, then parameters, that need a gradient
  std::vector<std::shared_ptr<Slot>> slots;
  std::vector<Weight> parameters;  // that train
};

}  // namespace

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

std::function<Tensor()> rebuilt_once(std::function<Tensor()> rebuild) {
  struct Shared {
    std::function<Tensor()> rebuild;
    Tensor tensor;
  };
  return [shared = std::make_shared<Shared>(Shared{std::move(rebuild), {}})] {
    if (!shared->tensor.defined()) shared->tensor = shared->rebuild();
    return shared->tensor;
  };
}

bool owns_memory(const Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.is_contiguous() &&
         tensor.storage_offset() == 0 && tensor.nbytes() == tensor.storage().nbytes();
}

Tensor to_overwrite(Tensor tensor) {
  return owns_memory(tensor) ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

void give(const std::shared_ptr<Slot>& slot, Tensor gradient) {
  if (slot) slot->give(std::move(gradient));
}

// Adds in place only if no other tensor reads the memory of the sum.
void Slot::give(Tensor gradient) {
  if (!gradient_.defined()) {
    gradient_ = std::move(gradient);
  } else if (owns_memory(gradient_)) {
    gradient_.add_(gradient);
  } else {
    gradient_ = gradient_ + gradient;
  }
}

void Slot::give_sum(at::ScalarType type, const std::function<Tensor(const Tensor& sum)>& function) {
  const bool adds =
      gradient_.defined() && owns_memory(gradient_) && gradient_.scalar_type() == type;
  if (!adds) return give(function({}));
  gradient_ = function(gradient_);
}

// Computes gradient = dy W + beta gradient, with beta 0 for the first product.
void Slot::give_product(Precision precision, const Tensor& dy, const Tensor& weight,
                        const Tensor& spare) {
  const double beta = gradient_.defined() ? 1.0 : 0.0;
  gradient_ = gradient_.defined() ? to_overwrite(std::move(gradient_)) : spare;
  product_into(precision, rows_of(gradient_), dy, weight, beta);
}

Tensor Kept::take() {
  if (rebuild_) return std::exchange(rebuild_, nullptr)();
  return std::exchange(tensor_, {});
}

bool Pass::is_read(const Tensor& x) const {
  const ReadTokens* const read = options_.read.get();
  return read != nullptr && x.dim() == 3 && x.size(0) == 1 && x.size(1) == read->index.size(0);
}

const std::shared_ptr<const TokenLayout>& Pass::layout_of(const Tensor& x) const {
  return is_read(x) ? options_.read->layout : layout();
}

kernels::PassInputs Pass::inputs_of(const Tensor& x) const {
  kernels::PassInputs inputs = options_.inputs;
  inputs.layout = layout_of(x);
  return inputs;
}

Tensor Pass::values(const Weight& parameter) const {
  return parameter.defined() ? options_.parameters->values(parameter) : Tensor();
}

Tensor Pass::factor(const Weight& parameter) const {
  if (!parameter.defined()) return {};
  return options_.parameters->factor(parameter, options_.precision);
}

Tensor Pass::leaf(const Weight& parameter) const {
  return parameter.defined() ? options_.parameters->tensor(parameter) : Tensor();
}

void Pass::add(const Weight& parameter, const Tensor& gradient) {
  if (parameter.defined()) options_.parameters->gradients().add(parameter, gradient);
}

void Pass::add_sum_of_rows(const Weight& parameter, const Tensor& rows) {
  if (parameter.defined()) options_.parameters->gradients().add_sum_of_rows(parameter, rows);
}

void Pass::add_product(const Weight& weight, const Tensor& dy, const Tensor& x) {
  options_.parameters->gradients().add_product(weight, dy, x);
}

void Pass::add_product_to_rows(const Weight& weight, int64_t first, const Tensor& dy,
                               const Tensor& x) {
  options_.parameters->gradients().add_product_to_rows(weight, first, dy, x);
}

void Pass::add_to_rows(const Weight& weight, const Tensor& indices, const Tensor& rows,
                       int64_t skipped) {
  options_.parameters->gradients().add_to_indexed_rows(weight, indices, rows, skipped);
}

void Pass::complete(std::initializer_list<Weight> parameters) {
  options_.parameters->gradients().complete(parameters);
}

bool Pass::trains(const Weight& parameter) const {
  const bool trains = options_.parameters->trains(parameter);
  needs_gradient_ = needs_gradient_ || trains;
  return trains;
}

Value Pass::result(Tensor tensor, bool needs_gradient) const {
  needs_gradient_ = needs_gradient_ || needs_gradient;
  const bool has_slot = needs_gradient && records();
  return {.tensor = std::move(tensor), .slot = has_slot ? std::make_shared<Slot>() : nullptr};
}

Kept Pass::keep(Value x) const {
  if (x.rebuild) return {Tensor(), std::move(x.rebuild)};
  return {std::move(x.tensor), nullptr};
}

void Pass::record(const Value& result, std::function<void(Tensor dy)> backward) {
  if (result.slot) tape_.push_back({result.slot, std::move(backward)});
}

// Records an autograd graph of `function` alone, between detached inputs and a detached result.
Value Pass::differentiate(std::vector<Value> inputs, std::vector<Weight> parameters,
                          const Function& function) {
  std::vector<Tensor> arguments;
  for (const Value& input : inputs) arguments.push_back(input.tensor);
  for (const Weight& parameter : parameters) {
    arguments.push_back(is_plain() ? leaf(parameter) : values(parameter));
  }
  LocalGraph graph;
  for (const Weight& parameter : parameters) {
    if (trains(parameter)) graph.parameters.push_back(parameter);
  }
  if (!records()) return result(function(arguments), false);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_input = i < inputs.size();
    if (is_input ? !inputs[i].slot : !trains(parameters[i - inputs.size()])) continue;
    arguments[i] = arguments[i].detach().requires_grad_();
    graph.leaves.push_back(arguments[i]);
    if (is_input) graph.slots.push_back(inputs[i].slot);
  }
  if (graph.leaves.empty()) return result(function(arguments), false);
  {
    const c10::AutoGradMode grad_mode(true);
    graph.result = function(arguments);
  }
  const Value y = result(graph.result.detach(), true);
  record(y, [this, graph = std::move(graph)](const Tensor& dy) {
    std::vector<Tensor> gradients = torch::autograd::grad(
        {graph.result}, graph.leaves, {dy}, /*retain_graph=*/false, /*create_graph=*/false,
        /*allow_unused=*/true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      if (i < graph.slots.size()) {
        graph.slots[i]->give(std::move(gradients[i]));
      } else {
        add(graph.parameters[i - graph.slots.size()], gradients[i]);
      }
    }
    for (const Weight& parameter : graph.parameters) complete({parameter});
  });
  return y;
}

// The forward pass records nothing. The backward pass runs the segment again on a separate tape
// and returns the gradient of the segment's input. Meanwhile the input of the segment before is
// copied back, if it is in host memory.
Value Pass::checkpoint(Value x, const Segment& segment) {
  FT_CHECK(records(), "only a pass that records runs a segment again");
  const std::shared_ptr<Slot> of_input = x.slot;
  const auto input = std::make_shared<StowedTensor>(x.tensor, options_.checkpointing.offload);
  Value y;
  {
    Pass forward(Mode::kEval, options_);
    forward.needs_gradient_ = of_input != nullptr;
    Tensor end = segment({.tensor = std::move(x.tensor)}, forward).tensor;
    y = result(std::move(end), forward.needs_gradient_);
  }
  if (!y.slot) return y;
  input->leave();
  if (options_.checkpointing.offload) stowed_.push_back(input);
  record(y, [this, segment, of_input, input](Tensor dy) {
    Pass again(mode_, options_);
    Value start = again.result(input->take(), of_input != nullptr);
    std::erase(stowed_, input);
    if (!stowed_.empty()) stowed_.back()->fetch();
    const std::shared_ptr<Slot> of_start = start.slot;
    Value end = segment(std::move(start), again);
    end.tensor = Tensor();
    again.backward(end, std::move(dy));
    if (of_input) of_input->give(of_start->take());
  });
  return y;
}

// In the forward pass of a segment the value has another slot, which collects the gradients of
// the segments after it. It also has one where something else in the segment needs a gradient, and
// then nobody takes it.
void SharedValue::set(Value value, const Pass& p) {
  const std::shared_ptr<Slot> later = std::exchange(value_, {}).slot;
  if (later && later->has_gradient() && value.slot) value.slot->give(later->take());
  value_ = std::move(value);
  value_.rebuild = {};
  if (!p.records() && p.needs_gradient()) value_.slot = std::make_shared<Slot>();
}

// Runs the tape from its end. Operations whose result got no gradient are skipped.
void Pass::backward(const Value& result, Tensor gradient) {
  FT_CHECK(records() && !std::exchange(is_spent_, true), "a tape serves one backward pass");
  if (!stowed_.empty()) stowed_.back()->fetch();
  result.slot->give(std::move(gradient));
  while (!tape_.empty()) {
    const Operation operation = std::move(tape_.back());
    tape_.pop_back();
    if (operation.result->has_gradient()) operation.backward(operation.result->take());
  }
  options_.parameters->gradients().add_pending();
}

// Hands autograd one node for the whole equation. The anchor, an extra input that needs a gradient,
// makes autograd call it even if no other input does.
Tensor run(const std::shared_ptr<Pass>& pass, const std::vector<Tensor>& inputs,
           const Equation& equation) {
  std::vector<Value> values;
  if (pass->is_plain()) {
    for (const Tensor& input : inputs) values.push_back({.tensor = input});
    return equation(std::move(values), *pass).tensor;
  }
  std::vector<std::shared_ptr<Slot>> slots;
  Value y;
  {
    const c10::NoGradGuard no_grad;
    for (const Tensor& input : inputs) {
      values.push_back({.tensor = input.detach()});
      if (pass->records() && input.requires_grad()) values.back().slot = std::make_shared<Slot>();
      slots.push_back(values.back().slot);
    }
    y = equation(std::move(values), *pass);
  }
  if (!y.slot) return y.tensor;
  std::vector<Tensor> all = inputs;
  all.push_back(pass->options().parameters->anchor());
  const Tensor result = std::exchange(y.tensor, {});
  y.rebuild = {};
  return attach_backward(result, all, [pass, y, slots](Tensor gradient) -> std::vector<Tensor> {
    pass->backward(y, std::move(gradient));
    std::vector<Tensor> gradients;
    for (const std::shared_ptr<Slot>& slot : slots) {
      gradients.push_back(slot ? slot->take() : Tensor());
    }
    gradients.emplace_back();  // of the anchor
    return gradients;
  });
}

}  // namespace finetune::nn
