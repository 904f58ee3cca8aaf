// SPDX-License-Identifier: MIT
#include "finetune/kernels/mxfp4.h"

#include "finetune/base/error.h"
#include "kernels/interface/kernels.h"

namespace finetune::kernels {

Tensor dequantize_mxfp4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                        at::ScalarType type) {
  FT_CHECK(codes.is_contiguous() && codes.scalar_type() == at::kByte && scales.is_contiguous() &&
               scales.scalar_type() == at::kByte && first >= 0 && count >= 0 &&
               first % kMxfp4Block == 0 && count % kMxfp4Block == 0 &&
               first + count <= 2 * codes.numel() && first + count <= kMxfp4Block * scales.numel(),
           "codes and scales of whole blocks");
  return kernels_for(scales).dequantize_mxfp4(codes, scales, first, count, type);
}

}  // namespace finetune::kernels
