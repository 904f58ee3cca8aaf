// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // of the parameters that decay
};

// AdamW (Loshchilov and Hutter 2019, algorithm 2) with torch's fused kernel:
//   p <- p (1 - lr wd);  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
//   p <- p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
class AdamW {
 public:
  // One parameter with its state; `decays` puts it into the group with weight decay.
  struct Slot {
    std::string name;
    Tensor parameter;
    bool decays = false;
    Tensor exp_avg, exp_avg_sq;  // like the parameter
    Tensor step;                 // float scalar: updates applied
  };

  AdamW(const NamedTensors& parameters, const std::vector<bool>& decays,
        const AdamWOptions& options);

  // Applies the parameters' gradients; a parameter without one is left alone, as torch does.
  void step(double learning_rate);
  void zero_grad();  // frees the gradients

  [[nodiscard]] const AdamWOptions& options() const { return options_; }
  // Those that decay first, each group in the order given: torch's numbering in optimizer.pt.
  [[nodiscard]] std::vector<Slot>& slots() { return slots_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }

 private:
  void step_group(bool decays, double learning_rate);

  AdamWOptions options_;
  std::vector<Slot> slots_;
};

// The 2-norm of all gradients together, and their scaling to at most `max_norm` (0: never), as
// torch.nn.utils.clip_grad_norm_ does. Returns the norm before clipping; non-finite norms clip
// nothing, so that the caller can refuse the update.
double clip_grad_norm(const NamedTensors& parameters, double max_norm);

}  // namespace finetune
