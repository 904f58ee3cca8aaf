// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Returns the name of the kernels for attention and all other operations on a device: "cpu",
// "plain" (torch's operators), ...
[[nodiscard]] const char* kernels_in_use(c10::Device device);

// Returns what an accelerator's operations run as, for messages: "NVRTC 13.0, sm_90", or that
// torch's operators are used; nothing for the CPU.
[[nodiscard]] std::string describe_kernels(c10::Device device);

// Returns the name of what a device's long or causal attention prefers: "flash", "row", ...
[[nodiscard]] const char* attention_in_use(c10::Device device);

// Whether the device's kernels compute attention in 16 bits in tiles, without scores in memory, for
// heads of some sizes.
[[nodiscard]] bool has_tiled_attention(c10::Device device);

// Whether they are compiled at run time for this accelerator.
[[nodiscard]] inline bool has_compiled_kernels(c10::Device device) {
  return std::string_view(kernels_in_use(device)) == "cuda";
}

// Whether the host runs ahead of the device, so that every launch costs time and every value read
// by the host makes it wait: callers then launch one operation for many tensors, take whole tensors
// rather than chunks, and skip checks of values.
[[nodiscard]] bool is_asynchronous(c10::Device device);
// Copies a tensor of the host to the device, without waiting if the device is asynchronous.
[[nodiscard]] Tensor uploaded(const Tensor& host, c10::Device device);

}  // namespace finetune
