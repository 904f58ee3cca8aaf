// SPDX-License-Identifier: MIT
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

bool has_fast_products(Precision /*precision*/) { return true; }

bool update_together(const std::vector<AdamWJob>& /*jobs*/) { return false; }

bool add_rows_stochastically(const Tensor& /*target*/, const Tensor& /*indices*/,
                             const Tensor& /*rows*/, int64_t /*skipped*/,
                             const RoundingKey& /*key*/) {
  return false;
}

constinit const Kernels kKernels = {
    .name = "plain",
#define FINETUNE_OPERATION(operation) .operation = operation,  // NOLINT: a member
#include "kernels/interface/operations.def"
    // Chunks are so large that the cost of each call is negligible.
    .chunk_values = int64_t{1} << 22,
    .is_asynchronous = true,
};

}  // namespace finetune::kernels::plain
