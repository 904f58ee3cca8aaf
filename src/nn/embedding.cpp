// SPDX-License-Identifier: MIT
#include "finetune/nn/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

namespace finetune::nn {

Embedding::Embedding(const Scope& scope, int64_t rows, int64_t columns, ParameterRole role)
    : weight_(scope.parameter("weight", {rows, columns}, role)) {}

Tensor Embedding::rows(const Tensor& ids, const Pass& p) const {
  if (weight_.is_meta()) {  // ATen's operator does not support the meta device
    std::vector<int64_t> sizes = ids.sizes().vec();
    sizes.push_back(weight_.size(1));
    return at::empty(sizes, weight_.options().requires_grad(false));
  }
  return p.options().parameters->gather_rows(weight_, ids);
}

Value Embedding::operator()(const Tensor& ids, Pass& p, int64_t padding_id) const {
  if (p.is_plain()) return {.tensor = at::embedding(weight_, ids, padding_id)};
  const Value y = p.result(rows(ids, p), p.trains(weight_));
  p.record(y, [&p, weight = weight_, ids, padding_id](const Tensor& dy) {
    p.add_to_rows(weight, ids, rows_of(dy), padding_id);
    p.complete({weight});
  });
  return y;
}

}  // namespace finetune::nn
