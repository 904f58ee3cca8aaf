// SPDX-License-Identifier: MIT
#include "export/gguf_layout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "finetune/base/error.h"

namespace finetune {
namespace {

// Values of each row change, their order does not.
void change_values(GgufTensor& tensor, Tensor (*change)(const Tensor&),
                   Tensor (*undo)(const Tensor&)) {
  tensor.rows = [rows = tensor.rows, change](int64_t first, int64_t count) {
    return change(rows(first, count));
  };
  tensor.restored = [restored = tensor.restored, undo](const Tensor& values) {
    return restored(undo(values));
  };
}

}  // namespace

void transpose(GgufTensor& tensor) {
  std::swap(tensor.shape[0], tensor.shape[1]);
  tensor.restored = [restored = tensor.restored](const Tensor& values) {
    return restored(values.t());
  };
  tensor.rows = [rows = tensor.rows, all = tensor.shape[0], inputs = tensor.shape[1],
                 turned = Tensor()](int64_t first, int64_t count) mutable {
    if (!turned.defined()) turned = rows(0, inputs).t().contiguous();
    Tensor result = turned.narrow(0, first, count);
    if (first + count == all) turned.reset();
    return result;
  };
}

void interleave_halves(GgufTensor& tensor, int64_t heads) {
  const int64_t half = tensor.shape[0] / heads / 2;
  tensor.rows = [rows = tensor.rows, half](int64_t first, int64_t count) {
    std::vector<Tensor> parts;
    for (int64_t row = first; row < first + count;) {
      const int64_t head = row / (2 * half) * (2 * half);
      const int64_t end = std::min(first + count, head + 2 * half);
      const int64_t pair = (row - head) / 2;
      const int64_t pairs = (end - head + 1) / 2 - pair;
      const Tensor both =
          at::stack({rows(head + pair, pairs), rows(head + half + pair, pairs)}, 1).flatten(0, 1);
      parts.push_back(both.narrow(0, row - head - 2 * pair, end - row));
      row = end;
    }
    return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
  };
  tensor.restored = [restored = tensor.restored, heads, half](const Tensor& values) {
    std::vector<int64_t> shape = values.sizes().vec();
    const Tensor pairs = values.reshape({heads, half, 2, values.numel() / values.size(0)});
    return restored(pairs.transpose(1, 2).reshape(shape));
  };
}

void exchange_row_groups(GgufTensor& tensor, int64_t first, int64_t outer, int64_t inner,
                         int64_t size) {
  FT_CHECK(tensor.shape[0] == first + outer * inner * size, "groups hold all rows");
  tensor.rows = [rows = tensor.rows, first, outer, inner, size](int64_t begin, int64_t count) {
    std::vector<Tensor> parts;
    for (int64_t row = begin; row < begin + count;) {
      const int64_t missing = begin + count - row;
      if (row < first) {
        parts.push_back(rows(row, std::min(missing, first - row)));
      } else {
        const int64_t group = (row - first) / size, within = (row - first) % size;
        const int64_t source = first + (group % outer * inner + group / outer) * size + within;
        parts.push_back(rows(source, std::min(missing, size - within)));
      }
      row += parts.back().size(0);
    }
    return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
  };
  tensor.restored = [restored = tensor.restored, first, outer, inner, size](const Tensor& values) {
    const Tensor groups = values.narrow(0, first, values.size(0) - first);
    const Tensor turned = groups.reshape({inner, outer, size, -1}).transpose(0, 1);
    return restored(at::cat({values.narrow(0, 0, first), turned.reshape(groups.sizes())}, 0));
  };
}

void exchange_column_groups(GgufTensor& tensor, int64_t outer, int64_t inner, int64_t size) {
  FT_CHECK(tensor.shape[1] == outer * inner * size, "groups hold all columns");
  const auto exchanged = [](const Tensor& values, int64_t a, int64_t b, int64_t c) {
    return values.reshape({-1, a, b, c}).transpose(1, 2).reshape(values.sizes());
  };
  tensor.rows = [=, rows = tensor.rows](int64_t first, int64_t count) {
    return exchanged(rows(first, count), outer, inner, size);
  };
  tensor.restored = [=, restored = tensor.restored](const Tensor& values) {
    return restored(exchanged(values, inner, outer, size));
  };
}

void remove_middle(GgufTensor& tensor) {
  tensor.shape.erase(tensor.shape.begin() + 1);
  change_values(
      tensor, [](const Tensor& values) { return values.squeeze(1); },
      [](const Tensor& values) { return values.unsqueeze(1); });
}

void add_one(GgufTensor& tensor) {
  change_values(
      tensor, [](const Tensor& values) -> Tensor { return values + 1.0F; },
      [](const Tensor& values) -> Tensor { return values - 1.0F; });
}

void negate_exponential(GgufTensor& tensor) {
  change_values(
      tensor, [](const Tensor& values) -> Tensor { return -at::exp(values); },
      [](const Tensor& values) -> Tensor { return at::log(-values); });
}

}  // namespace finetune
