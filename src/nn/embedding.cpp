// SPDX-License-Identifier: MIT
#include "finetune/nn/embedding.h"

#include <ATen/ops/embedding.h>

namespace finetune::nn {

Embedding::Embedding(const Scope& scope, int64_t rows, int64_t columns, ParameterRole role)
    : weight_(scope.parameter("weight", {rows, columns}, role)) {}

Value Embedding::operator()(const Tensor& ids, Pass& p, int64_t padding_id) const {
  if (p.is_plain()) return {.tensor = at::embedding(p.leaf(weight_), ids, padding_id)};
  const Value y = p.result(p.options().parameters->gather_rows(weight_, ids), p.trains(weight_));
  p.record(y, [&p, weight = weight_, ids, padding_id](const Tensor& dy) {
    p.add_to_rows(weight, ids, rows_of(dy), padding_id);
    p.complete({weight});
  });
  return y;
}

}  // namespace finetune::nn
