// SPDX-License-Identifier: MIT
#include "kernels/cpu/matrix_product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "finetune/base/error.h"

// BLAS in libtorch_cpu, which is what ATen calls. Weak, because a build of libtorch may hide it.
// Integers of 64 bits serve libraries with 32 bits, too, which read the lower half.
extern "C" __attribute__((weak)) void sgemm_(const char* transpose_a, const char* transpose_b,
                                             const int64_t* m, const int64_t* n, const int64_t* k,
                                             const float* alpha, const float* a, const int64_t* lda,
                                             const float* b, const int64_t* ldb, const float* beta,
                                             float* c, const int64_t* ldc);

namespace finetune::kernels::cpu {
namespace {

// A factor as BLAS takes it: stored by columns, or transposed.
struct Factor {
  char transpose;
  int64_t leading;

  explicit Factor(const Matrix& x) {
    const bool is_by_columns = x.row_stride == 1 && x.column_stride >= std::max<int64_t>(1, x.rows);
    FT_CHECK(
        is_by_columns || (x.column_stride == 1 && x.row_stride >= std::max<int64_t>(1, x.columns)),
        "a product takes matrices that are contiguous along rows or columns");
    transpose = is_by_columns ? 'n' : 't';
    leading = is_by_columns ? x.column_stride : x.row_stride;
    // BLAS checks the stride of a single column, too.
    if (is_by_columns && x.columns == 1) leading = x.rows;
    if (!is_by_columns && x.rows == 1) leading = x.columns;
  }
};

bool is_by_columns(const Matrix& target) {
  return target.row_stride == 1 &&
         (target.columns == 1 || target.column_stride >= std::max<int64_t>(1, target.rows));
}

}  // namespace

// The choices of at::native::addmm_impl_cpu_.
at::Tensor as_tensor(const Matrix& x) {
  return at::from_blob(x.data, {x.rows, x.columns}, {x.row_stride, x.column_stride}, at::kFloat);
}

void multiply(const Matrix& target, const Matrix& a, const Matrix& b, float beta, float alpha) {
  if (sgemm_ == nullptr) {
    as_tensor(target).addmm_(as_tensor(a), as_tensor(b), beta, alpha);
    return;
  }
  // BLAS stores results by columns: of a target by rows it computes the transpose, b^T a^T.
  const bool keeps_order = is_by_columns(target);
  const Matrix left = keeps_order ? a : b.t();
  const Matrix right = keeps_order ? b : a.t();
  const Factor first(left);
  const Factor second(right);
  const int64_t columns = right.columns;
  const int64_t apart = keeps_order ? target.column_stride : target.row_stride;
  const int64_t leading = columns == 1 ? left.rows : apart;
  sgemm_(&first.transpose, &second.transpose, &left.rows, &columns, &left.columns, &alpha,
         left.data, &first.leading, right.data, &second.leading, &beta, target.data, &leading);
}

}  // namespace finetune::kernels::cpu
