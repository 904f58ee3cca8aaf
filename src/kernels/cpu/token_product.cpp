// SPDX-License-Identifier: MIT
// Products of float32 matrices by oneDNN. MKL, which ATen calls, uses 256-bit instructions on
// processors of other makers than Intel; oneDNN generates 512-bit code for all that have them,
// which is 2.2 times as fast on Zen 5.
#include "finetune/kernels/token_product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "finetune/kernels/kernels_in_use.h"
#include "kernels/cpu/operations.h"

// ATen's interface of oneDNN in libtorch_cpu. Weak, because a build of libtorch may lack or hide
// it.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result,
                                         float beta, float alpha);
}  // namespace at::native

namespace finetune::kernels::cpu {
namespace {

// oneDNN generates code for each size and keeps it: 0.3 to 0.6 MiB. Tokens are therefore divided
// into few sizes, and fewer than the last of them are left to BLAS.
constexpr int64_t kParts[] = {512, 256, 128, 64};
constexpr int64_t kLeastSize = 64;
// Below this a call of oneDNN costs more than it saves.
constexpr int64_t kLeastProducts = int64_t{1} << 21;

// ATen refuses to call oneDNN where the environment limits the instructions that it may use
// (DNNL_MAX_CPU_ISA).
bool is_mkldnn_allowed() {
  if (at::native::mkldnn_matmul == nullptr) return false;
  try {
    const Tensor x = at::ones({kLeastSize, kLeastSize});
    at::native::mkldnn_matmul(x, x, at::empty_like(x), 0.0F, 1.0F);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

bool is_faster_than_mkl() {
#if defined(__x86_64__)
  static const bool is_faster =
      __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx512f") != 0 && is_mkldnn_allowed();
  return is_faster;
#else
  return false;
#endif
}

// Calls `function` with the first token and the number of tokens of each part.
template <typename Function>
void for_each_part(int64_t tokens, const Function& function) {
  int64_t first = 0;
  for (const int64_t part : kParts) {
    for (; tokens - first >= part; first += part) function(first, part);
  }
  if (first < tokens) function(first, tokens - first);
}

void multiply_part(const Tensor& target, const Tensor& a, const Tensor& b, int64_t tokens,
                   double beta) {
  if (tokens < kLeastSize || at::native::mkldnn_matmul == nullptr) {
    target.addmm_(a, b, beta, 1.0);
  } else {
    at::native::mkldnn_matmul(a, b, target, static_cast<float>(beta), 1.0F);
  }
}

}  // namespace

bool has_token_product(const Tensor& a, const Tensor& b) {
  if (!is_faster_than_mkl() || a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat) {
    return false;
  }
  const int64_t least = std::min({a.size(0), a.size(1), b.size(1)});
  return least >= kLeastSize && a.size(0) * a.size(1) * b.size(1) >= kLeastProducts;
}

void token_product(const Tensor& target, const Tensor& a, const Tensor& b, TokenAxis tokens,
                   double beta) {
  if (tokens == TokenAxis::kRows) {
    for_each_part(a.size(0), [&](int64_t first, int64_t count) {
      multiply_part(target.narrow(0, first, count), a.narrow(0, first, count), b, count, beta);
    });
    return;
  }
  for_each_part(a.size(1), [&](int64_t first, int64_t count) {
    multiply_part(target, a.narrow(1, first, count), b.narrow(0, first, count), count,
                  first == 0 ? beta : 1.0);
  });
}

}  // namespace finetune::kernels::cpu

// Samples of one length need 4 MiB of code with matrices of 256 x 1,024, and 20 MiB with 768 x
// 3,072; samples of all lengths 30 MiB. The tokens that are read of the last layer have other
// sizes.
int64_t finetune::product_code_bytes(int64_t values) {
  if (!kernels::cpu::is_faster_than_mkl()) return 0;
  return int64_t{values < (int64_t{1} << 20) ? 16 : 28} << 20;
}
