// SPDX-License-Identifier: MIT
#include "finetune/kernels/formats.h"

#include <ATen/ops/empty.h>

#include <span>

#include "finetune/kernels/format_lists.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

enum Conversion : int { kRound, kAdd, kSplit, kJoin };  // variants of device/formats.cu

constexpr int64_t kValuesOfConversionBlock = 2048;  // kListedValues of device/lists.h

// Calls conversion_of(one, launch) for each of `list`, as many in a launch as it takes.
template <typename One, typename Function>
void convert(Conversion conversion, std::span<const One> list, const Function& conversion_of) {
  while (!list.empty()) {
    const size_t count = std::min<size_t>(list.size(), kConversionsOfLaunch);
    Launch launch(list.front().tensor());
    FormatsArguments arguments = {};
    int64_t blocks = 0;
    for (const One& one : list.first(count)) {
      ListedConversion entry = conversion_of(one, launch);
      entry.count = one.tensor().numel();
      if (entry.count == 0) continue;
      entry.first_block = blocks;
      const auto skipped = static_cast<int64_t>(entry.first_element % 4);
      blocks += (skipped + entry.count - 1) / kValuesOfConversionBlock + 1;
      arguments.conversions[arguments.count++] = entry;
    }
    launch.run<kernel::formats>(ValueType::kFloat32, conversion, {.x = blocks}, arguments);
    list = list.subspan(count);
  }
}

void round_or_add(Conversion conversion, std::span<const RoundedSum> sums) {
  convert(conversion, sums, [&](const RoundedSum& one, Launch& launch) {
    ListedConversion entry = {};
    entry.values = const_cast<float*>(launch.reads<float>(one.values));
    entry.narrow =
        conversion == kAdd ? launch.changes<u16>(one.target) : launch.writes<u16>(one.target);
    entry.key = one.key.key;
    entry.first_element = one.key.first_element;
    return entry;
  });
}

}  // namespace

void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key) {
  const RoundedSum one = {.target = target, .values = values, .key = key};
  round_or_add(kRound, std::span(&one, 1));
}

void add_all_stochastically(const std::vector<RoundedSum>& sums) { round_or_add(kAdd, sums); }

void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction) {
  const SplitTensor one = {.weight = weight, .correction = correction, .values = values};
  convert(kSplit, std::span(&one, 1), [](const SplitTensor& split, Launch& launch) {
    ListedConversion entry = {};
    entry.values = const_cast<float*>(launch.reads<float>(split.values));
    entry.narrow = launch.writes<u16>(split.weight);
    entry.correction = launch.writes<signed char>(split.correction);
    return entry;
  });
}

void join_all_values(const std::vector<SplitTensor>& list) {
  convert(kJoin, std::span(list), [](const SplitTensor& split, Launch& launch) {
    ListedConversion entry = {};
    entry.values = launch.writes<float>(split.values);
    entry.narrow = const_cast<u16*>(launch.reads<u16>(split.weight));
    entry.correction = const_cast<signed char*>(launch.reads<signed char>(split.correction));
    return entry;
  });
}

Tensor joined_rows(const Tensor& weight, const Tensor& correction, const Tensor& indices) {
  const Tensor positions = indices.contiguous();
  const int64_t columns = weight.size(1);
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(columns);
  const Tensor values = at::empty(sizes, weight.options().dtype(at::kFloat));
  Launch launch(weight);
  // The bytes of the gathered rows, not of the tables.
  const JoinedRowsArguments arguments = {
      .narrow = launch.address<u16>(weight, 2 * values.numel()),
      .correction = launch.address<signed char>(correction, values.numel()),
      .indices = launch.reads<i64>(positions),
      .values = launch.writes<float>(values),
      .columns = columns};
  launch.run<kernel::joined_rows>(
      ValueType::kFloat32, 0, {.x = positions.numel(), .threads = threads_for(columns)}, arguments);
  return values;
}

}  // namespace finetune::kernels::cuda
