// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

constexpr int64_t kValuesOfBlock = 2048;  // kListedValues of device/lists.h

// Below this many, a second launch costs more than it saves.
constexpr int64_t kFewestParts = 4;

enum Sums : int { kExactSums, kRoundedSums };  // variants of device/row_sums.cu

// Adds rows of sorted indices, so that a row of the target is summed by one block, in order.
void add_sorted_rows(Sums sums, const Tensor& target, const Tensor& indices, const Tensor& rows,
                     int64_t skipped, uint64_t rounding_key = 0) {
  // A radix sort goes through keys of 32 bits half as often as through those of 64.
  Tensor sorted = indices.to(at::kInt).contiguous();
  Tensor order;
  if (indices.numel() > 1) {
    std::tie(sorted, order) = at::sort(sorted, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  }
  const Tensor values = rows.contiguous();
  const int64_t columns = rows.size(1);
  // A token of which there are many, the only type: one block would go through all its rows.
  const int64_t count = indices.numel() / kRowsOfPart;
  const Tensor parts =
      count < kFewestParts ? Tensor() : at::empty({count, columns}, rows.options());
  Launch launch(target);
  RowSumsArguments arguments = {.target = launch.changes(target),
                                .rows = launch.reads<float>(values),
                                .indices = launch.reads<int>(sorted),
                                .order = launch.reads<i64>(order),
                                .count = indices.numel(),
                                .columns = columns,
                                .skipped = skipped,
                                .parts = nullptr,
                                .rounding_key = rounding_key};
  if (parts.defined()) {
    Launch first(parts);
    arguments.parts = first.writes<float>(parts);
    (void)first.reads(values);
    const int threads = threads_for(4 * columns);
    first.run<kernel::row_parts>(
        ValueType::kFloat32, 0,
        {.x = count, .y = (columns + threads - 1) / threads, .threads = threads}, arguments);
  }
  launch.run<kernel::row_sums>(ValueType::kFloat32, sums, {.x = indices.numel()}, arguments);
}

bool has_rows_sums(const Tensor& target, const Tensor& rows) {
  return target.is_contiguous() && target.scalar_type() == at::kFloat &&
         rows.scalar_type() == at::kFloat;
}

// The sums of squares of kValuesOfBlock values each of tensors of one type, and of all of them.
Tensor squares_of(const std::vector<Tensor>& tensors) {
  std::vector<ListedTensor> entries;
  Launch launch(tensors.front());
  int64_t blocks = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    entries.push_back(
        {.values = launch.reads(tensor), .count = tensor.numel(), .first_block = blocks});
    blocks += (tensor.numel() + kValuesOfBlock - 1) / kValuesOfBlock;
  }
  if (entries.empty()) return at::zeros({1}, tensors.front().options().dtype(at::kDouble));
  const Tensor table = on_device(entries, tensors.front());
  const Tensor parts = at::empty({blocks + 1}, tensors.front().options().dtype(at::kDouble));
  const Tensor result = parts.narrow(0, blocks, 1);
  const SumOfSquaresArguments arguments = {.tensors = launch.reads<ListedTensor>(table),
                                           .count = static_cast<int>(entries.size()),
                                           .blocks = static_cast<int>(blocks),
                                           .parts = launch.writes<double>(parts),
                                           .result = launch.writes<double>(result)};
  launch.run<kernel::sum_of_squares>(value_type_of(tensors.front()), 0, {.x = blocks}, arguments);
  Launch second(parts);
  (void)second.changes(parts);
  second.run<kernel::sum_of_parts>(ValueType::kFloat32, 0, {.x = 1}, arguments);
  return parts;
}

double sum_in(const Tensor& squares) { return squares[-1].item<double>(); }

}  // namespace

void add_rows(const Tensor& target, const Tensor& indices, const Tensor& rows, int64_t skipped) {
  if (!has_rows_sums(target, rows)) return plain::add_rows(target, indices, rows, skipped);
  add_sorted_rows(kExactSums, target, indices, rows, skipped);
}

void sum_rows(const Tensor& target, const Tensor& indices, const Tensor& rows) {
  if (!has_rows_sums(target, rows)) return plain::sum_rows(target, indices, rows);
  add_sorted_rows(kExactSums, target, indices, rows, /*skipped=*/-1);
}

bool add_rows_stochastically(const Tensor& target, const Tensor& indices, const Tensor& rows,
                             int64_t skipped, const RoundingKey& key) {
  add_sorted_rows(kRoundedSums, target, indices, rows, skipped, key.key);
  return true;
}

double sum_of_squares(const Tensor& values) { return sum_in(squares_of({values})); }

std::vector<double> block_sums_of_squares(const Tensor& values) {
  static_assert(kSquaresBlock % kValuesOfBlock == 0, "whole blocks");
  const Tensor parts = squares_of({values}).cpu();
  std::vector<double> sums;
  for (int64_t i = 0; i + 1 < parts.numel(); ++i) {
    if (i % (kSquaresBlock / kValuesOfBlock) == 0) sums.push_back(0.0);
    sums.back() += parts[i].item<double>();
  }
  return sums;
}

double sum_of_all_squares(const std::vector<Tensor>& tensors) {
  double sum = 0.0;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<Tensor> some;
    for (const Tensor& tensor : tensors) {
      if (tensor.scalar_type() == type) some.push_back(tensor);
    }
    if (!some.empty()) sum += sum_in(squares_of(some));
  }
  return sum;
}

}  // namespace finetune::kernels::cuda
