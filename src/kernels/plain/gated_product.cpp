// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

Tensor gated_product(const Tensor& gate, const Tensor& up, Activation f) {
  return f(gate).mul_(up);
}

void gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                            const Tensor& gradient) {
  const Tensor leaf = gate.detach().requires_grad_();
  Tensor activated;
  {
    const c10::AutoGradMode grad_mode(true);
    activated = f(leaf);
  }
  const Tensor of_gate = torch::autograd::grad({activated}, {leaf}, {gradient * up})[0];
  // The graph is gone: nothing else reads the activation.
  up.copy_(activated.detach().mul_(gradient));
  gate.copy_(of_gate);
}

}  // namespace finetune::kernels::plain
