// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include "finetune/config/load.h"
#include "finetune/distributed/world.h"

namespace finetune {

// Connects the GPUs of several ranks that compute on `device`, if ddp_backend and the ranks allow
// it, so that gradients are summed there. Otherwise prints how they are summed. A collective.
void connect_devices(World& world, const c10::Device& device, const LoadedConfig& config);

}  // namespace finetune
