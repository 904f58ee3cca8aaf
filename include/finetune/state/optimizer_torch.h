// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/optim/optimizer.h"
#include "finetune/state/state_gather.h"
#include "finetune/tensor/snapshot.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {

// The learning rates of a parameter group in optimizer.pt.
struct OptimizerRates {
  double learning_rate = 0.0;          // of the next update
  double initial_learning_rate = 0.0;  // of the configuration
};

// Whether transformers' Trainer can resume from our checkpoint with the optimizer's states: all
// parameters have one kind, which has a TorchFormat, and none is an expert's. Otherwise the states
// are stored in optimizer.safetensors and its Trainer starts with a new optimizer.
[[nodiscard]] bool transformers_reads_states(const Optimizer& optimizer);

// Returns optimizer.pt in the format of transformers' Trainer for the same optimizer: the
// state_dict of torch.optim.AdamW ("adamw"), bitsandbytes.optim.AdamW with 8 bits ("adamw_8bit"),
// transformers' Adafactor ("adafactor") or torch.optim.SGD ("sgd"). Tensors are the optimizer's
// own, not copies; with a snapshot, their current values are written. Requires:
// transformers_reads_states().
[[nodiscard]] TorchValue optimizer_to_torch(const Optimizer& optimizer, const OptimizerRates& rates,
                                            Snapshot* snapshot = nullptr,
                                            StateGather* gather = nullptr);

}  // namespace finetune
