// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace finetune {

// A rank's description of its device, exchanged before the ranks connect their devices.
struct DeviceOffer {
  std::string reason = {};  // why the device cannot be connected; empty if it can
  std::string position =
      {};  // identifies the device across machines: no two ranks may have the same

  // Conversion to a single text, and back.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static DeviceOffer of_text(const std::string& text);
};

// Returns why these devices, in rank order, cannot be connected; empty if they can.
[[nodiscard]] std::string reason_against(const std::vector<DeviceOffer>& offers);

}  // namespace finetune
