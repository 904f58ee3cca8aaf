// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"
#include "kernels/interface/dropout_mask.h"

namespace finetune::kernels::cuda {
namespace {

bool has_adapter_kernel(const Tensor& x, const Tensor& a) {
  return a.size(0) <= kLargestAdapterRank && x.numel() > 0 && x.is_contiguous() &&
         x.scalar_type() == a.scalar_type();
}

// `rank`: the largest; `is_exact`: of all adapters, and their rows are aligned.
int adapter_variant(int rank, bool is_exact) {
  const int variant = rank <= 8 ? 0 : 1;
  return is_exact && rank == 8 << variant ? variant + kAdapterVariants : variant;
}

AdapterArguments adapter_arguments(const Tensor& x, const Tensor& a, const RowDropout& dropout,
                                   Launch& launch) {
  std::optional<DropoutNumbers> numbers;
  if (dropout.p != 0.0) {
    numbers = make_dropout_numbers(dropout.p, dropout.stream, dropout.layer, dropout.site);
  }
  return {.input = launch.reads(x),
          .factor = launch.reads(a),
          .low = nullptr,
          .of_input = nullptr,
          .parts = nullptr,
          .rows = x.size(0),
          .rows_at_once = 1,
          .columns = x.size(1),
          .scale = 1.0F,
          .rank = static_cast<int>(a.size(0)),
          .adds = 0,
          .is_aligned = is_aligned(x.size(1), {x, a}),
          .dropout = dropout_arguments(numbers, dropout.rows_of_sample, dropout.layout, launch)};
}

// Of as many adapters as one launch takes.
void multiply_at_once(const Tensor& x, const AdapterFactor* first, size_t count,
                      std::vector<Tensor>& low) {
  Launch launch(x);
  AdaptersArguments arguments = {};
  int rank = 0;
  bool is_exact = true;
  for (size_t i = 0; i < count; ++i) {
    const AdapterFactor& adapter = first[i];
    AdapterArguments& own = arguments.of[i];
    own = adapter_arguments(x, adapter.a, adapter.dropout, launch);
    low.push_back(at::empty({x.size(0), adapter.a.size(0)}, x.options()));
    own.low = launch.writes(low.back());
    own.scale = static_cast<float>(adapter.scale);
    is_exact = is_exact && own.is_aligned != 0 && own.rank == arguments.of[0].rank;
    rank = std::max(rank, own.rank);
  }
  constexpr int64_t kRows = int64_t{kThreads} / kWarp * kAdapterRows;  // of a block
  launch.run<kernel::adapter_product>(
      value_type_of(x), adapter_variant(rank, is_exact),
      {.x = (x.size(0) + kRows - 1) / kRows, .y = static_cast<int64_t>(count)}, arguments);
}

std::vector<Tensor> adapter_products(const Tensor& x, const std::vector<AdapterFactor>& adapters) {
  std::vector<Tensor> low;
  for (size_t done = 0; done < adapters.size(); done = low.size()) {
    const size_t count = std::min<size_t>(adapters.size() - done, kMostAdaptersAtOnce);
    multiply_at_once(x, &adapters[done], count, low);
  }
  return low;
}

// Divides rows among warps, kStagedRows or more to each: the parts of the gradient of A stay below
// 5 MB where the rank is 16.
RowParts rows_of_warps(int64_t rows, int64_t columns) {
  constexpr int64_t kValuesOfRank = 73'728;
  const int64_t most = kAdapterWarps * std::clamp<int64_t>(kValuesOfRank / columns, 16, 128);
  return RowParts(rows, std::clamp<int64_t>(rows / kStagedRows, 1, most));
}

Tensor adapter_backward(const Tensor& of_input, bool adds, const Tensor& x, const Tensor& low,
                        const Tensor& a, const RowDropout& dropout) {
  const int64_t columns = x.size(1);
  const RowParts of_warps = rows_of_warps(x.size(0), columns);
  const int64_t blocks = (of_warps.count + kAdapterWarps - 1) / kAdapterWarps;
  const Tensor parts = at::empty({blocks, a.size(0) * columns}, x.options().dtype(at::kFloat));
  Launch launch(x);
  AdapterArguments arguments = adapter_arguments(x, a, dropout, launch);
  arguments.low = const_cast<void*>(launch.reads(low));
  arguments.of_input = adds ? launch.changes(of_input) : launch.writes(of_input);
  arguments.parts = launch.writes<float>(parts);
  arguments.rows_at_once = of_warps.rows_at_once;
  arguments.adds = static_cast<int>(adds);
  arguments.is_aligned = is_aligned(columns, {x, a, of_input, parts});
  launch.run<kernel::adapter_backward>(
      value_type_of(x), adapter_variant(arguments.rank, arguments.is_aligned != 0),
      {.x = blocks,
       .y = (columns + int64_t{2} * kWarp - 1) / (int64_t{2} * kWarp),
       .threads = kAdapterWarps * kWarp},
      arguments);
  return parts;
}

}  // namespace

const AdapterProducts kAdapterProducts = {
    .serves = has_adapter_kernel, .products = adapter_products, .backward = adapter_backward};

}  // namespace finetune::kernels::cuda
