// SPDX-License-Identifier: MIT
// The weights of a new model: a function of (seed, name), with transformers' initialisation.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "finetune/base/interrupt.h"
#include "finetune/kernels/normal.h"
#include "finetune/nn/dora.h"
#include "model/backbone_with_head.h"

namespace finetune {
namespace {

// Whether transformers treats the parameter as a norm's: encoders by class, decoders by name.
bool is_of_norm(const std::string& name) {
  for (const char* part : {"LayerNorm.", "layer_norm.", "layernorm", "_norm.", ".norm.", ".ln_",
                           ".norm1.", ".norm2.", "scorer.0."}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

// FNV-1a: decides the weights of a seed, so never change it
uint64_t hash_name(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// Fills with a truncated normal distribution: values beyond `most` are drawn again.
void fill_truncated_normal(const Tensor& values, double deviation, double most, uint64_t seed,
                           const std::string& name) {
  fill_normal(values, deviation, seed, hash_name(name));
  const Tensor again = at::empty_like(values);
  for (int64_t attempt = 1; values.abs().gt(most).any().item<bool>(); ++attempt) {
    fill_normal(again, deviation, seed, hash_name(name + "#" + std::to_string(attempt)));
    values.copy_(at::where(values.abs().gt(most), again, values));
  }
}

constexpr std::string_view kMagnitude = ".lora_magnitude_vector";

// DoRA starts as its base: B is zero.
Tensor fresh_magnitude(const Parameter& parameter, ParameterStore& store,
                       const ModelConfig& config) {
  const std::string& name = parameter.name();
  const std::string module = name.substr(0, name.size() - kMagnitude.size());
  const nn::LoraTerm term{.a = store.weight(module + ".lora_A.weight"),
                          .b = store.weight(module + ".lora_B.weight"),
                          .magnitude = parameter.handle};
  return nn::dora_norm(term, store.weight(module + ".weight"), has_transposed_linear(config),
                       store);
}

// The inputs of the dense layer that has a parameter; it starts as torch.nn.Linear does.
std::optional<int64_t> inputs_of_module(const ModelConfig& config, const std::string& name) {
  for (const DenseConfig& dense : config.embedding.dense) {
    if (module_folder(name) == dense.module) return dense.in_features;
  }
  return std::nullopt;
}

void draw(Parameter& parameter, ParameterStore& store, const ModelConfig& config, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  const Architecture& architecture = architecture_of(config);
  // transformers reads 0 as "not set".
  const double deviation = config.initializer_range != 0.0 ? config.initializer_range : 0.02;
  // Drawn on the CPU, so that every device and format starts from the same numbers.
  const Tensor values = at::zeros(parameter.handle.sizes());
  const bool is_weight = parameter.name().ends_with("weight") ||
                         parameter.role() == ParameterRole::kStackedLinear ||
                         architecture.is_drawn(parameter.name());
  if (parameter.name().ends_with(kMagnitude)) {
    values.copy_(fresh_magnitude(parameter, store, config));
  } else if (const auto fixed = architecture.fixed_values(config, parameter.handle)) {
    values.copy_(*fixed);
  } else if (parameter.role() == ParameterRole::kConstant) {
    values.fill_(1.0);
  } else if (parameter.name().ends_with(".act_fn.alpha_p")) {  // of xIELU, and the next
    values.fill_(std::log(std::expm1(0.8)));
  } else if (parameter.name().ends_with(".act_fn.alpha_n")) {
    values.fill_(std::log(std::expm1(0.8 - 0.5)));
  } else if (parameter.role() == ParameterRole::kAdapter) {
    // As PEFT: A by Kaiming's rule with a = sqrt(5), B zero, so that the model starts as the base.
    const double inputs = static_cast<double>(values.size(1));
    if (parameter.name().ends_with("lora_A.weight")) {
      fill_uniform(values, 1.0 / std::sqrt(inputs), seed, hash_name(parameter.name()));
    } else if (parameter.name().ends_with(".lora_embedding_B")) {  // here A is zero
      fill_normal(values, 1.0, seed, hash_name(parameter.name()));
    }
  } else if (const auto inputs = inputs_of_module(config, parameter.name())) {
    fill_uniform(values, 1.0 / std::sqrt(static_cast<double>(*inputs)), seed,
                 hash_name(parameter.name()));
  } else if (parameter.name().ends_with(".dt_bias")) {  // of gated delta nets, and the next
    values.fill_(1.0);
  } else if (parameter.name().ends_with(".A_log")) {
    fill_uniform(values, 0.5, seed, hash_name(parameter.name()));
    values.add_(0.5).mul_(16.0 - 0.01).add_(0.01).log_();
  } else if (is_weight && is_of_norm(parameter.name())) {
    // The norm of a gated delta net never adds one to its weight.
    const bool is_whole = parameter.name().ends_with(".linear_attn.norm.weight");
    values.fill_(is_whole ? 1.0 : architecture.fresh_norm());
  } else if (is_weight) {
    const double own = deviation * architecture.fresh_share(config, parameter.name());
    if (const auto cutoff = architecture.fresh_cutoff(config)) {
      fill_truncated_normal(values, own, *cutoff * own, seed, parameter.name());
    } else {
      fill_normal(values, own, seed, hash_name(parameter.name()));
    }
    const auto padding = architecture.padding_row(config, parameter);
    if (padding) values[*padding].zero_();
  }
  store.assign(parameter, values);
}

}  // namespace

void draw_weights(ParameterStore& store, const ModelConfig& config, uint64_t seed) {
  for (Parameter& parameter : store.parameters()) {
    interrupt::throw_if_requested("drawing the model's weights");
    draw(parameter, store, config, seed);
  }
}

void draw_weights(Model& model, uint64_t seed, const std::vector<std::string>& names) {
  for (Parameter& parameter : model.store().parameters()) {
    if (std::ranges::find(names, parameter.name()) == names.end()) continue;
    draw(parameter, model.store(), model.config(), seed);
  }
}

bool has_weight_decay(const std::string& parameter_name) {
  // transformers excludes LayerNorm modules and all names that contain "bias" or a norm's name.
  return parameter_name.find("bias") == std::string::npos && !is_of_norm(parameter_name);
}

}  // namespace finetune
