// SPDX-License-Identifier: MIT
#include "finetune/kernels/formats.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {
namespace {

enum Conversion : int { kRound, kAdd, kSplit, kJoin };  // variants of device/formats.cu

void convert(Conversion conversion, FormatsArguments arguments, Launch& launch, int64_t count) {
  const auto skipped = static_cast<int64_t>(arguments.first_element % 4);
  arguments.count = count;
  const int64_t groups = count == 0 ? 0 : (skipped + count + 3) / 4;
  launch.run<kernel::formats>(ValueType::kFloat32, conversion,
                              {.x = (groups + kThreads - 1) / kThreads}, arguments);
}

void round_or_add(Conversion conversion, const Tensor& target, const Tensor& values,
                  const RoundingKey& key) {
  Launch launch(target);
  FormatsArguments arguments = {};
  arguments.values = const_cast<float*>(launch.reads<float>(values));
  arguments.narrow = conversion == kAdd ? launch.changes<u16>(target) : launch.writes<u16>(target);
  arguments.key = key.key;
  arguments.first_element = key.first_element;
  convert(conversion, arguments, launch, target.numel());
}

}  // namespace

void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  round_or_add(kRound, target, values, key);
}

void add_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  round_or_add(kAdd, target, values.contiguous(), key);
}

void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction) {
  Launch launch(values);
  FormatsArguments arguments = {};
  arguments.values = const_cast<float*>(launch.reads<float>(values));
  arguments.narrow = launch.writes<u16>(weight);
  arguments.correction = launch.writes<signed char>(correction);
  convert(kSplit, arguments, launch, values.numel());
}

void join_values(const Tensor& weight, const Tensor& correction, const Tensor& values) {
  Launch launch(values);
  FormatsArguments arguments = {};
  arguments.values = launch.writes<float>(values);
  arguments.narrow = const_cast<u16*>(launch.reads<u16>(weight));
  arguments.correction = const_cast<signed char*>(launch.reads<signed char>(correction));
  convert(kJoin, arguments, launch, values.numel());
}

}  // namespace finetune::kernels::cuda
