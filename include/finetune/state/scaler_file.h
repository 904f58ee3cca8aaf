// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/optim/loss_scaler.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {

// scaler.pt as torch.amp.GradScaler's state_dict.
[[nodiscard]] TorchValue scaler_to_torch(const LossScaler& scaler);

// An empty dictionary, that of a scaler which was switched off, changes nothing. Factors and
// interval of growth other than torch's defaults, which ours always has, are refused. Throws
// Error(kData) with `where`.
void scaler_from_torch(LossScaler& scaler, const TorchValue& value, const std::string& where);

}  // namespace finetune
