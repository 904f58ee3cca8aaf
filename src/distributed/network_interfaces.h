// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Of this machine, those with an address: "lo, eth0".
[[nodiscard]] std::string network_interfaces();

}  // namespace finetune
