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
#include "kernels/interface/operations.def"
    .chunk_values = kChunkValues,
    .is_asynchronous = false,
    .attends_fewer_queries = true,
};

}  // namespace finetune::kernels::cpu
