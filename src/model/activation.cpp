// SPDX-License-Identifier: MIT
#include "model/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/tanh.h>

#include <array>
#include <numbers>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/kernels/layer_operations.h"

namespace finetune {
namespace {

// transformers implements the tanh form under several names, which differ only in rounding.
using kernels::tanh_gelu;
constexpr Activation kExactGelu = kernels::gelu;

Tensor clipped_gelu(const Tensor& x) { return at::clamp(at::gelu(x), -10, 10); }

Tensor laplace(
    const Tensor& x) {  // Ma et al. 2022 (MEGA), eq. 16, with mu and sigma as given there
  return 0.5 * (1.0 + at::erf((x - 0.707107) / (0.282095 * std::numbers::sqrt2)));
}

struct NamedActivation {
  std::string_view name;
  Activation function;
};

constexpr std::array kActivations = {
    NamedActivation{"gelu", kExactGelu},
    NamedActivation{"gelu_10", clipped_gelu},
    NamedActivation{"gelu_accurate", tanh_gelu},
    NamedActivation{"gelu_fast", tanh_gelu},
    NamedActivation{"gelu_new", tanh_gelu},
    NamedActivation{"gelu_python", kExactGelu},
    NamedActivation{"gelu_python_tanh", tanh_gelu},
    NamedActivation{"gelu_pytorch_tanh", tanh_gelu},
    NamedActivation{"hardswish", [](const Tensor& x) { return at::hardswish(x); }},
    NamedActivation{"laplace", laplace},
    NamedActivation{"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.01); }},
    NamedActivation{"linear", [](const Tensor& x) { return x; }},
    NamedActivation{"mish", [](const Tensor& x) { return at::mish(x); }},
    NamedActivation{"quick_gelu", [](const Tensor& x) { return x * at::sigmoid(1.702 * x); }},
    NamedActivation{"relu", [](const Tensor& x) { return at::relu(x); }},
    NamedActivation{"relu2", [](const Tensor& x) { return at::square(at::relu(x)); }},
    NamedActivation{"relu6", [](const Tensor& x) { return at::hardtanh(x, 0, 6); }},
    NamedActivation{"sigmoid", [](const Tensor& x) { return at::sigmoid(x); }},
    NamedActivation{"silu", kernels::silu},
    NamedActivation{"sqrtsoftplus", [](const Tensor& x) { return at::sqrt(at::softplus(x)); }},
    NamedActivation{"swish", kernels::silu},
    NamedActivation{"tanh", [](const Tensor& x) { return at::tanh(x); }},
};

}  // namespace

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const NamedActivation& activation : kActivations) names.emplace_back(activation.name);
  return names;
}

Activation find_activation(const std::string& name) {
  for (const NamedActivation& activation : kActivations) {
    if (activation.name == name) return activation.function;
  }
  FT_CHECK(false, "an activation that parse_model_config lets through has no code: " + name);
}

}  // namespace finetune
