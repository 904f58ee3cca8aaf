// SPDX-License-Identifier: MIT
#include "model/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "finetune/tensor/meta_memory.h"
#include "support/paths.h"

namespace finetune {
namespace {

nlohmann::ordered_json golden() {
  return read_json_file(source_dir() + "/tests/fixtures/model/activations.json");
}

Tensor column(const nlohmann::ordered_json& json, const std::string& name) {
  return at::tensor(json[name].get<std::vector<double>>(), at::kFloat);
}

TEST(Activation, IsThereForEveryNameThatTransformersHas) {
  const nlohmann::ordered_json expected = golden();
  std::vector<std::string> names;
  for (const auto& [name, values] : expected.items()) {
    if (name != "x") names.push_back(name);
  }
  EXPECT_EQ(activation_names(), names);
}

TEST(Activation, EqualsThatOfTransformers) {
  const nlohmann::ordered_json expected = golden();
  for (const std::string& name : activation_names()) {
    const Tensor got = find_activation(name)(column(expected, "x"));
    const Tensor wanted = column(expected, name);  // written with seven digits
    const Tensor excess = (got - wanted).abs() - 1e-6 * wanted.abs();
    EXPECT_LT(excess.max().item<float>(), 1e-6F) << name;
  }
}

// So that every model can be planned.
TEST(Activation, RunsOnTheMetaDeviceInBothDirections) {
  register_meta_operators();
  const auto options = at::TensorOptions(at::kFloat).device(c10::kMeta);
  for (const std::string& name : activation_names()) {
    Tensor x = at::empty({3, 4}, options).requires_grad_();
    try {
      find_activation(name)(x).sum().backward();
    } catch (const c10::Error& error) {
      ADD_FAILURE() << name << ": " << error.what_without_backtrace();
      continue;
    }
    EXPECT_EQ(x.grad().sizes(), x.sizes()) << name;
  }
}

}  // namespace
}  // namespace finetune
