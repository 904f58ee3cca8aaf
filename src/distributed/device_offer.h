// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace finetune {

// A rank's description of its device, exchanged before the ranks connect their devices.
struct DeviceOffer {
  std::string reason = {};  // why it cannot be joined; empty: it can
  std::string place = {};   // of the device among all machines': no two processes may have one

  // As one text, and back.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static DeviceOffer of_text(const std::string& text);
};

// Why these devices, in the order of ranks, cannot be joined; empty: they can.
[[nodiscard]] std::string reason_against(const std::vector<DeviceOffer>& offers);

}  // namespace finetune
