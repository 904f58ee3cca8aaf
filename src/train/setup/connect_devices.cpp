// SPDX-License-Identifier: MIT
#include "train/setup/connect_devices.h"

#include "finetune/base/log.h"
#include "finetune/distributed/membership.h"

namespace finetune {

void connect_devices(World& world, const c10::Device& device, const LoadedConfig& config) {
  if (world.size() == 1) return;
  const std::string asked = config.args.ddp_backend.value_or("");
  const bool asks_for_gloo = asked == "gloo";
  // Also called on CPUs: a process with a GPU waits for all others here.
  const std::string reason = asks_for_gloo ? "" : world.connect(device);
  if (!world.is_first() || asks_for_gloo) return;
  const bool is_joined = !device.is_cpu() && reason.empty();
  if (!asked.empty() && !(asked == "nccl" && is_joined)) {
    log::warning(config.where("ddp_backend") + ": 'ddp_backend: " + asked +
                 "' has no effect here: processes talk through Gloo, and sum the gradients of "
                 "NVIDIA GPUs over NCCL");
  }
  if (is_joined) {
    log::info("gradients are summed on the GPUs, over NCCL " + nccl_version());
  } else if (!device.is_cpu()) {
    log::warning("gradients go through host memory and Gloo: " + reason);
  }
}

}  // namespace finetune
