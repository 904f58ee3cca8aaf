// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/peer_timeout.h"
#include "finetune/distributed/membership.h"

namespace finetune {

// Opens the store for the rendezvous: a file, or a port that rank 0 opens only on its address and
// for which the other ranks wait. Throws Error(kConfig), Interrupted, PeerLost if rank 0 does not
// appear, and c10::Error.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(const Membership& membership,
                                                         PeerTimeout& peer_timeout);

// Returns this machine's interfaces that have an address: "lo, eth0".
[[nodiscard]] std::string network_interfaces();

}  // namespace finetune
