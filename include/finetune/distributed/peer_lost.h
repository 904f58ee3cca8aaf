// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

namespace finetune {

// Another rank is dead. Ends in exit code 75; an empty text: another process reports it.
class PeerLost : public std::runtime_error {
 public:
  explicit PeerLost(const std::string& message) : std::runtime_error(message) {}
};

// From there on, what a save that is being written, or the way out of a long computation, may take.
inline constexpr std::chrono::seconds kTimeToLeave{2};

}  // namespace finetune
