// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/optim/optimizer.h"
#include "finetune/state/state_gather.h"
#include "finetune/tensor/snapshot.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {

// What a group of parameters has for a learning rate in optimizer.pt.
struct OptimizerRates {
  double learning_rate = 0.0;          // of the next update
  double initial_learning_rate = 0.0;  // of the configuration
};

// Whether transformers' Trainer, started on a checkpoint of ours, resumes with the optimizer's
// states: all parameters have one kind, which has a TorchFormat. Otherwise they are stored in
// optimizer.safetensors and its Trainer starts a fresh optimizer.
[[nodiscard]] bool transformers_reads_states(const Optimizer& optimizer);

// optimizer.pt as transformers' Trainer keeps it for the same optimizer: the state_dict of
// torch.optim.AdamW ("adamw"), bitsandbytes.optim.AdamW at 8 bits ("adamw_8bit"), transformers'
// Adafactor ("adafactor") or torch.optim.SGD ("sgd"). Tensors are the optimizer's own, not copies;
// where a snapshot is given, it holds them. Requires: transformers_reads_states().
[[nodiscard]] TorchValue optimizer_to_torch(const Optimizer& optimizer, const OptimizerRates& rates,
                                            Snapshot* snapshot = nullptr,
                                            StateGather* gather = nullptr);

}  // namespace finetune
