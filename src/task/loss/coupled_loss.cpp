// SPDX-License-Identifier: MIT
#include "task/loss/coupled_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <vector>

#include "finetune/base/error.h"

namespace finetune {

void CoupledLoss::couple(const Tensor& rows, int64_t samples, int64_t at_once,
                         const Losses& losses) {
  FT_CHECK(samples > 0 && rows.size(0) % samples == 0, "each sample has as many rows");
  const c10::AutoGradMode with_gradient(true);
  const Tensor leaf = rows.detach().requires_grad_();
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < samples; first += at_once) {
    const Tensor part = losses(leaf, first, std::min(at_once, samples - first));
    part.sum().backward();
    parts.push_back(part.detach());
  }
  losses_ = at::cat(parts);
  gradients_ = leaf.grad();
}

Tensor CoupledLoss::sum_of(const Tensor& rows, int64_t first_row) const {
  const int64_t rows_of_sample = gradients_.size(0) / losses_.size(0);
  const int64_t count = rows.size(0);
  FT_CHECK(first_row % rows_of_sample == 0 && count % rows_of_sample == 0, "whole samples");
  const Tensor gradient = gradients_.narrow(0, first_row, count).to(rows.device());
  const Tensor product = (rows * gradient).sum();
  const Tensor value = losses_.narrow(0, first_row / rows_of_sample, count / rows_of_sample).sum();
  return product - product.detach() + value.to(rows.device());
}

}  // namespace finetune
