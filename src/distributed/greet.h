// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/patience.h"
#include "finetune/distributed/membership.h"

namespace finetune {

// Waits for all others, and checks that they know the token and have the same identity. All of
// them meet or none: where one leaves before (Interrupted), the others are told and leave too.
// Throws Error(kConfig) where what somebody says does not fit, PeerLost where not all come, and
// c10::Error where the store is gone.
void greet(c10d::Store& store, const Membership& membership, const std::string& identity,
           Patience& patience);

// Whether a process that says it is this rank is, or was, in the store.
[[nodiscard]] bool has_greeted(c10d::Store& store, int64_t rank);

}  // namespace finetune
