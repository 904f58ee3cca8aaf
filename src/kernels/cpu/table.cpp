// SPDX-License-Identifier: MIT
#include "kernels/cpu/operations.h"

namespace finetune::kernels::cpu {

bool update_together(const std::vector<AdamWJob>& /*jobs*/) { return false; }

bool add_rows_stochastically(const Tensor& /*target*/, const Tensor& /*indices*/,
                             const Tensor& /*rows*/, int64_t /*skipped*/,
                             const RoundingKey& /*key*/) {
  return false;
}

constinit const Kernels kKernels = {
    .name = "cpu",
#define FINETUNE_OPERATION(operation) .operation = operation,  // NOLINT: a member
#include "kernels/operations.def"
    // Weight and gradient of a chunk then fit the L2 caches of two cores.
    .chunk_values = int64_t{1} << 18,
    .is_asynchronous = false,
};

}  // namespace finetune::kernels::cpu
