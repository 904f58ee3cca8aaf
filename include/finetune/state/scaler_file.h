// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/optim/loss_scaler.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {

// Returns scaler.pt as torch.amp.GradScaler's state_dict.
[[nodiscard]] TorchValue scaler_to_torch(const LossScaler& scaler);

// Restores a scaler. An empty dictionary (from a disabled GradScaler) changes nothing. Growth
// factors and intervals must be torch's defaults, which this scaler uses. Throws Error(kData) with
// `where`.
void scaler_from_torch(LossScaler& scaler, const TorchValue& value, const std::string& where);

}  // namespace finetune
