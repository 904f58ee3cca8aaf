// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

namespace finetune {

// Another rank is dead. Ends in exit code 75. With an empty text, another process reports it.
class PeerLost : public std::runtime_error {
 public:
  explicit PeerLost(const std::string& message) : std::runtime_error(message) {}
};

// The time after that for a save in progress, or for leaving a long computation.
inline constexpr std::chrono::seconds kTimeToLeave{2};

}  // namespace finetune
