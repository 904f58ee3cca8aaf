// SPDX-License-Identifier: MIT
#include "finetune/tensor/backward.h"

#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldBackward : torch::CustomClassHolder {
  explicit HeldBackward(Backward run) : backward(std::move(run)) {}
  Backward backward;
};

struct Computed {
  const Tensor& output;
  c10::intrusive_ptr<HeldBackward> held;
};

// torch's Function finds inputs only among direct arguments, not in lists.
constexpr size_t kMaxInputs = 3;

class HandWritten : public torch::autograd::Function<HandWritten> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& /*first*/, const Tensor& /*second*/,
                        const Tensor& /*third*/, const Computed& computed) {
    context->saved_data["backward"] = c10::IValue::make_capsule(computed.held);
    context->set_materialize_grads(false);
    return computed.output.detach();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list results;
    if (gradients[0].defined()) {
      const auto holder = context->saved_data["backward"].toCapsule();
      const Backward run = std::exchange(static_cast<HeldBackward&>(*holder).backward, nullptr);
      FT_CHECK(run != nullptr, "a second backward pass through a hand-written one");
      results = run(gradients[0]);
    }
    results.resize(kMaxInputs + 1);  // the last one is for `computed`
    return results;
  }
};

}  // namespace

Tensor attach_backward(const Tensor& output, const std::vector<Tensor>& inputs, Backward backward) {
  const bool needed = std::any_of(inputs.begin(), inputs.end(),
                                  [](const Tensor& input) { return input.requires_grad(); });
  if (!c10::GradMode::is_enabled() || !needed) return output;
  FT_CHECK(inputs.size() <= kMaxInputs, "more inputs than a hand-written function takes");
  const auto input = [&](size_t i) { return i < inputs.size() ? inputs[i] : inputs[0].detach(); };
  return HandWritten::apply(
      input(0), input(1), input(2),
      Computed{output, c10::make_intrusive<HeldBackward>(std::move(backward))});
}

}  // namespace finetune
