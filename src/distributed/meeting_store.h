// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "finetune/distributed/membership.h"

namespace finetune {

// Through which the processes meet: a file, or a port that rank 0 opens on its address alone.
// Throws Error(kConfig), and c10::Error where nobody comes within `timeout`.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> open_store(const Membership& membership,
                                                         std::chrono::milliseconds timeout);

// Waits for all others, and checks that they know the token and have the same identity. Throws as
// above.
void greet(c10d::Store& store, const Membership& membership, const std::string& identity);

}  // namespace finetune
