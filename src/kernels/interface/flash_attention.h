// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/layer_operations.h"
#include "kernels/interface/attention_core.h"

namespace finetune::kernels {

// Attention of which no row of scores is ever in memory, by a device's own operators (Dao 2023:
// FlashAttention-2): memory grows with the length, not with its square.
struct FlashAttention {
  // Which operators it prefers, for a run's environment: "flash", ... Other ones give other bits.
  const char* (&name)();
  // Whether torch has them for this device; pretend accelerators have none.
  bool (&is_there)(c10::Device device);
  // Whether the device's kernels compute it in tiles, for heads of some sizes in 16
  // bits, where torch's do not serve.
  bool (&has_tiles)(c10::Device device);
  // Whether the device has it for these types and sizes, and gains by it.
  bool (&serves)(const Attention& inputs);
  // Returns the context and the log-sum-exp of each row, which the backward pass reads. Requires:
  // serves(inputs).
  Attended (&forward)(const Attention& inputs);
  // `gradient` is that of the context. The same bits in every run on one GPU.
  AttendedGradients (&backward)(const Attention& inputs, const Attended& forward,
                                const Tensor& gradient);
};

}  // namespace finetune::kernels
