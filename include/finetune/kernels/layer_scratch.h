// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/kernels/layer_operations.h"

// Memory that kernels allocate and free again. Each table of kernels declares its own, next to the
// kernels that need it, so that a plan of memory contains no formula of a kernel.
namespace finetune::kernels {

// The tables of kernels, by name: a plan may be of a device that is not present.
enum class KernelTable {
  kCpu,
  kPlain,  // an accelerator without compiled kernels
  kCuda,
};

// Rows of up to this many tokens, without a causal rule, are as fast by the row kernel as by flash
// attention.
inline constexpr int64_t kShortRows = 512;

// Sizes of heads whose attention can be computed in tiles, by the device's own kernels.
[[nodiscard]] constexpr bool fits_tiles(int64_t head_size) {
  return head_size == 32 || head_size == 64;
}

// One layer in a pass over a micro-batch.
struct LayerSizes {
  int64_t tokens = 0;  // of all rows
  int64_t length = 1;  // of a row
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 1;
  int64_t block = 0;    // of block-sparse attention; 0: full attention
  int64_t sums = 0;     // columns whose gradients are sums over rows: those of biases and norms
  int64_t element = 4;  // bytes of an activation
  int64_t threads = 1;  // of the CPU's kernels
  // Kernels that keep no scores compute attention: torch's, or the device's own.
  bool flash = false;
  bool tiled = false;
};

struct LayerScratch {  // bytes
  int64_t forward = 0;
  int64_t backward = 0;
  // Of the backward pass of block-sparse attention, during which no matrix product runs.
  int64_t block_backward = 0;
};
[[nodiscard]] LayerScratch layer_scratch(KernelTable table, const LayerSizes& sizes);

// Tensors of the product's size that exist at once in the backward pass of f(gate) * up in addition
// to what is kept: the product itself, which the last matrix reads, and what the kernel needs.
[[nodiscard]] int64_t gated_product_tensors(KernelTable table, Activation f);

// Values of a parameter that update_in_chunks() converts to float32 at a time.
[[nodiscard]] int64_t chunk_values(KernelTable table);

}  // namespace finetune::kernels
