// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "finetune/kernels/layer_scratch.h"

namespace finetune::nn {

// What the parts of one layer allocate in addition to their results and to what they keep for the
// backward pass. Each part adds its share in a dry run (Pass::scratch()); plans of memory read the
// sums. Bytes for the rows of the dry run unless noted.
struct Scratch {
  // Set by the caller: where the planned run computes.
  kernels::KernelTable table = kernels::KernelTable::kCpu;
  int64_t threads = 1;  // of the CPU's kernels

  int64_t stream = 0;      // the layer's input
  int64_t activation = 0;  // the result of the feed-forward network's activation
  int64_t forward = 0;     // alive at once in the forward pass, where results wait for a later sum
  int64_t backward = 0;    // alive at once in the backward pass
  int64_t unkept = 0;      // results alive at once in a layer that keeps nothing
  int64_t rebuilt = 0;     // computed again in the backward pass if the pass is `selective`
  int64_t adapter = 0;     // of the largest input of an adapter's layer after its dropout
  int64_t by_head = 0;     // of the heads that are computed at once, for one row
  int64_t sequences_at_once = 1;  // rows for which they are, at most
  // Numbers of values, not bytes.
  int64_t matrix = 0;   // of the largest weight
  int64_t factors = 0;  // of both factors of the largest product of a weight's gradient
  int64_t sums = 0;     // of gradients that are sums over rows: of biases and of norms
  // Of the attention.
  int64_t heads = 1;
  bool fits_tiles = false;  // of a device's own kernels without scores in memory, in 16 bits
  int64_t block = 0;        // tokens of a block if the attention is block-sparse at this length

  // Adds an activation whose result has these bytes, and how many such tensors exist at once in
  // each pass in addition to what is kept.
  void add_activation(size_t bytes, int64_t in_forward, int64_t in_backward) {
    activation = static_cast<int64_t>(bytes);
    unkept += activation;
    rebuilt += activation;
    forward += in_forward * activation;
    backward += in_backward * activation;
  }
};

}  // namespace finetune::nn
