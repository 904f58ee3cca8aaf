// SPDX-License-Identifier: MIT
#include "kernels/cpu/matrix_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "finetune/tensor/tensor.h"

namespace finetune::kernels::cpu {
namespace {

Matrix matrix_of(const Tensor& x) {
  return {x.mutable_data_ptr<float>(), x.size(0), x.size(1), x.stride(0), x.stride(1)};
}

// [rows, columns] within a wider matrix, as a head's are within those of all heads; transposed
// where asked for.
Tensor draw_part(int64_t rows, int64_t columns, bool is_transposed, int64_t wider) {
  if (is_transposed) return draw_part(columns, rows, false, wider).t();
  return at::randn({rows + 1, columns + wider}).narrow(0, 1, rows).narrow(1, wider, columns);
}

// Every head of attention is such a product, and no bit of a trained model may depend on which
// interface of BLAS computes it.
TEST(MatrixProduct, GivesTheBitsOfAddmm) {
  at::manual_seed(3);
  const std::vector<int64_t> sizes = {1, 2, 5, 32, 67};
  for (const int64_t rows : sizes) {
    for (const int64_t columns : sizes) {
      for (const int64_t inner : {int64_t{1}, int64_t{3}, int64_t{64}, int64_t{130}}) {
        for (int kind = 0; kind < 16; ++kind) {
          const int64_t wider = (kind & 1) != 0 ? 12 : 0;
          const Tensor a = draw_part(rows, inner, (kind & 2) != 0, wider);
          const Tensor b = draw_part(inner, columns, (kind & 4) != 0, wider);
          const Tensor target = draw_part(rows, columns, (kind & 8) != 0, wider);
          const float beta = (kind & 1) != 0 ? 1.0F : 0.0F;
          const float alpha = (kind & 2) != 0 ? 0.3F : 1.0F;
          // In the same memory: bits may depend on alignment.
          const Tensor before = target.clone();
          target.addmm_(a, b, beta, alpha);
          const Tensor expected = target.clone();
          target.copy_(before);
          multiply(matrix_of(target), matrix_of(a), matrix_of(b), beta, alpha);
          EXPECT_TRUE(at::equal(target, expected))
              << rows << " x " << inner << " x " << columns << ", kind " << kind;
        }
      }
    }
  }
}

}  // namespace
}  // namespace finetune::kernels::cpu
