// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// What the forward pass keeps for the backward pass, which computes the rest again: the value of
// activation_checkpointing and its kwargs, from the keys to the tape.
struct ActivationCheckpointing {
  bool enabled = false;
  // Of every_n_layers consecutive layers only the first one's input is kept; all of them are
  // computed again (Chen et al. 2016).
  int64_t every_n_layers = 1;
  bool offload = false;  // these inputs are in host memory
  // Results of matrix products are kept, norms and activations computed again (Korthikanti et al.
  // 2022). Excludes the two above.
  bool selective = false;

  // Layers that are computed again as a whole; 0: none.
  [[nodiscard]] int64_t group() const { return enabled && !selective ? every_n_layers : 0; }
  [[nodiscard]] bool keeps_products() const { return enabled && selective; }

  friend bool operator==(const ActivationCheckpointing&, const ActivationCheckpointing&) = default;
};

}  // namespace finetune
