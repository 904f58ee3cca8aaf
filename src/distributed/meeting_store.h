// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/peer_timeout.h"
#include "finetune/distributed/membership.h"

namespace finetune {

// Through which the processes meet: a file, or a port that rank 0 opens on its address alone, for
// which the others wait. Throws Error(kConfig), Interrupted, PeerLost where rank 0 does not come,
// and c10::Error.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(const Membership& membership,
                                                         PeerTimeout& peer_timeout);

// Of this machine, those with an address: "lo, eth0".
[[nodiscard]] std::string network_interfaces();

}  // namespace finetune
