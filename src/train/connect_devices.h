// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include "finetune/config/load.h"
#include "finetune/distributed/world.h"

namespace finetune {

// A meeting of several processes, of which each computes on `device`: joins GPUs where ddp_backend
// and the processes allow it, so that gradients are summed there; says how they go else.
void connect_devices(World& world, const c10::Device& device, const LoadedConfig& config);

}  // namespace finetune
