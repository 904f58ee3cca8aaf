// SPDX-License-Identifier: MIT
#include "distributed/device_offer.h"

#include <algorithm>

#include "finetune/base/text.h"

namespace finetune {

std::string DeviceOffer::text() const { return reason + "\n" + position; }

DeviceOffer DeviceOffer::of_text(const std::string& text) {
  const size_t line = std::min(text.find('\n'), text.size());
  return {.reason = text.substr(0, line),
          .position = line < text.size() ? text.substr(line + 1) : std::string()};
}

std::string reason_against(const std::vector<DeviceOffer>& offers) {
  const auto& first = offers.front().reason;
  const bool is_same =
      std::ranges::all_of(offers, [&](const DeviceOffer& one) { return one.reason == first; });
  if (is_same && !first.empty()) return first;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (!offers[rank].reason.empty()) {
      return format_text("rank {}: {}", rank, offers[rank].reason);
    }
  }
  for (size_t rank = 1; rank < offers.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) {
      if (offers[other].position != offers[rank].position) continue;
      return format_text("ranks {} and {} share a GPU, which NCCL refuses", other, rank);
    }
  }
  return "";
}

}  // namespace finetune
