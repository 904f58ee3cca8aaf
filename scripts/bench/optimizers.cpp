// SPDX-License-Identifier: MIT
// One optimizer's updates of a RoBERTa's 84M parameters, for optimizers.py: seconds and CPU seconds
// of each as a JSON line. The target optimizers_benchmark is built on demand alone.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "finetune/optim/optimizer.h"

namespace {

using namespace finetune;

NamedTensors parameters(int64_t divisor) {
  const int64_t width = 768 / divisor;
  NamedTensors tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(tensors.size() + 1);
    tensors.push_back(
        {name, at::randn(shape, generator, at::TensorOptions(at::kFloat)).mul_(0.02)});
  };
  add("word_embeddings.weight", {52000 / divisor, width});
  add("position_embeddings.weight", {514, width});
  for (int layer = 0; layer < 6; ++layer) {
    const std::string prefix = std::to_string(layer) + ".";
    for (const char* name : {"query", "key", "value", "output"}) {
      add(prefix + name + ".weight", {width, width});
      add(prefix + name + ".bias", {width});
    }
    add(prefix + "intermediate.weight", {4 * width, width});
    add(prefix + "intermediate.bias", {4 * width});
    add(prefix + "down.weight", {width, 4 * width});
    add(prefix + "down.bias", {width});
    for (const char* name : {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}) {
      add(prefix + name, {width});
    }
  }
  add("head.weight", {width, width});
  return tensors;
}

WeightFormat format_of(const std::string& name) {
  if (name == "bfloat16") return WeightFormat::kBFloat16;
  return name == "split" ? WeightFormat::kSplit : WeightFormat::kFloat32;
}

// KIND FORMAT EMBEDDINGS_IN_8BIT(0/1) UPDATES DIVISOR
int run(const std::vector<std::string>& words) {
  const WeightFormat format = format_of(words.at(1));
  const GradientFormat gradients =
      format == WeightFormat::kFloat32 ? GradientFormat::kFloat32 : GradientFormat::kBFloat16;
  const NamedTensors named = parameters(std::stoll(words.at(4)));
  std::vector<Tensor> values;
  for (const NamedTensor& tensor : named) values.push_back(tensor.tensor.clone());
  ParameterStore store(named, format, gradients);
  std::vector<bool> decays;
  int64_t count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    Parameter& parameter = store.parameters()[i];
    store.assign(parameter, values[i]);
    parameter.gradient =
        values[i].mul(0.01).to(gradients == GradientFormat::kFloat32 ? at::kFloat : at::kBFloat16);
    decays.push_back(parameter.weight.dim() > 1);
    count += parameter.weight.numel();
  }
  values.clear();
  const auto optimizer = make_optimizer(store, decays,
                                        {.kind = words.at(0),
                                         .weight_decay = 0.01,
                                         .arguments = {{"momentum", 0.9},
                                                       {"embeddings_in_8bit", words.at(2) == "1"}}});
  std::string seconds;
  std::string cpu_seconds;
  for (int64_t update = 0; update < std::stoll(words.at(3)); ++update) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    optimizer->step(1e-4, 1.0, update);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const double of_cpu = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    seconds += (update == 0 ? "" : ", ") + std::to_string(passed.count());
    cpu_seconds += (update == 0 ? "" : ", ") + std::to_string(of_cpu);
  }
  std::cout << "{\"parameters\": " << count << ", \"seconds\": [" << seconds
            << "], \"cpu_seconds\": [" << cpu_seconds << "]}\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "optimizers_benchmark: " << error.what() << "\n";
    return 1;
  }
}
