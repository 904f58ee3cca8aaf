// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {
namespace {

// With two temporary tensors.
Tensor rotated(const Tensor& x, const HeadRotation& rotation) {
  const Tensor all = x.unflatten(-1, {-1, rotation.head_size}).to(compute_type(x));  // [B, T, H, D]
  const Tensor cos = rotation.cos.unsqueeze(1);
  const Tensor sin = rotation.sin.unsqueeze(1);
  const int64_t half = cos.size(-1);
  const int64_t rest = all.size(-1) - 2 * half;
  const Tensor a = all.narrow(-1, 0, half);
  const Tensor b = all.narrow(-1, half, half);
  const Tensor y = at::empty(all.sizes(), all.options());
  Tensor first = y.narrow(-1, 0, half);
  Tensor second = y.narrow(-1, half, half);
  at::mul_out(first, a, cos).add_(b.mul(sin), rotation.back ? 1.0 : -1.0);
  at::mul_out(second, b, cos).add_(a.mul(sin), rotation.back ? -1.0 : 1.0);
  if (rest > 0) y.narrow(-1, 2 * half, rest).copy_(all.narrow(-1, 2 * half, rest));
  return y.flatten(-2).to(x.scalar_type());
}

}  // namespace

std::vector<Tensor> rotate_heads(const std::vector<Tensor>& x, const HeadRotation& rotation) {
  std::vector<Tensor> turned;
  for (const Tensor& heads : x) turned.push_back(rotated(heads, rotation));
  return turned;
}

}  // namespace finetune::kernels::plain
