// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/peer_timeout.h"
#include "finetune/distributed/membership.h"

namespace finetune {

// Waits for all other ranks, and checks that they know the token and have the same identity. Either
// all ranks meet or none: if one exits before (Interrupted), the others are notified and exit too.
// Throws Error(kConfig) if a rank's message does not match, PeerLost if not all arrive, and
// c10::Error if the store is gone.
void greet(c10d::Store& store, const Membership& membership, const std::string& identity,
           PeerTimeout& peer_timeout);

// Whether the store has a message of a process that claims this rank.
[[nodiscard]] bool has_greeted(c10d::Store& store, int64_t rank);

}  // namespace finetune
