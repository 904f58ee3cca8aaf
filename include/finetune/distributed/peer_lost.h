// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

namespace finetune {

// Another process of the run is gone. Ends in exit code 75; an empty text: somebody else tells.
class PeerLost : public std::runtime_error {
 public:
  explicit PeerLost(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace finetune
