// SPDX-License-Identifier: MIT
#include "finetune/nn/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "finetune/kernels/partial_sums.h"
#include "finetune/nn/int8_products.h"

namespace finetune::nn {
namespace {

// Adds s A^T[ids] B^T to y. Returns s A^T[ids] [N, r].
Tensor add_adapter(const LoraTerm& lora, const Tensor& ids, const Tensor& y, const Pass& p) {
  const Tensor a = p.values(lora.a);
  const Tensor low = a.index_select(1, ids.flatten()).t().contiguous().mul_(lora.scale);
  product_into(p.options().precision, rows_of(y), low, p.factor(lora.b).t(), 1.0);
  return low;
}

// dB = dy^T low. dA^T[id] is the sum of s dy B over the tokens with this id, in the order of
// tokens, so that it does not depend on the number of threads.
void give_adapter(const LoraTerm& lora, const Tensor& ids, const Tensor& dy, const Tensor& low,
                  int64_t padding_id, Pass& p) {
  p.add_product(lora.b, dy, low);
  if (p.trains(lora.a)) {
    const Tensor d_low = product_in(p.options().precision, dy, p.factor(lora.b)).to(at::kFloat);
    const Tensor sums = at::zeros({lora.a.size(1), lora.a.size(0)}, d_low.options());
    kernels::add_rows(sums, ids.flatten().contiguous(), d_low * lora.scale, padding_id);
    p.add(lora.a, sums.t().contiguous());
  }
  p.complete({lora.a, lora.b});
}

Tensor plain_lookup(const Weight& weight, const std::optional<LoraTerm>& lora, const Tensor& ids,
                    int64_t padding_id, const Pass& p) {
  const Tensor y = at::embedding(p.leaf(weight), ids, padding_id);
  if (!lora) return y;
  const Tensor low = at::embedding(p.leaf(lora->a).t(), ids, padding_id);
  return y + lora->scale * at::linear(low, p.leaf(lora->b));
}

}  // namespace

Embedding::Embedding(const Scope& scope, int64_t rows, int64_t columns, ParameterRole role)
    : weight_(scope.parameter("weight", {rows, columns}, role)),
      lora_(scope.lora_of_embedding(rows, columns)) {}

Value Embedding::operator()(const Tensor& ids, Pass& p, int64_t padding_id) const {
  const std::optional<LoraTerm> adapter = p.options().without_adapter ? std::nullopt : lora_;
  if (p.is_plain()) return {.tensor = plain_lookup(weight_, adapter, ids, padding_id, p)};
  bool needs_gradient = p.trains(weight_);
  if (adapter) needs_gradient = p.trains(adapter->a) || p.trains(adapter->b) || needs_gradient;
  Tensor rows = p.options().parameters->gather_rows(weight_, ids);
  if (p.options().int8_products && has_int8_codes(weight_.sizes())) {
    rows = int8_rounded(rows_of(rows)).view(rows.sizes());
  }
  const Value y = p.result(std::move(rows), needs_gradient);
  Tensor low;
  if (adapter) low = add_adapter(*adapter, ids, y.tensor, p);
  p.record(y, [&p, weight = weight_, lora = adapter, ids, padding_id,
               low = std::move(low)](const Tensor& gradient) {
    const Tensor dy = rows_of(gradient);
    p.add_to_rows(weight, ids, dy, padding_id);
    if (lora) give_adapter(*lora, ids, dy, low, padding_id, p);
    p.complete({weight});
  });
  return y;
}

}  // namespace finetune::nn
