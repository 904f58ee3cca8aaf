// SPDX-License-Identifier: MIT
#include "finetune/report/duration_text.h"

#include <cmath>

#include "finetune/base/text.h"

namespace finetune {
namespace {

// Formats with one decimal below 10, none above.
std::string amount(double value, const char* unit) {
  return format_number(value < 9.95 ? "%.1f " : "%.0f ", value) + unit;
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds == 0) return "0 s";
  if (seconds < 0.00095) return "under 1 ms";
  if (seconds < 0.9995) return amount(seconds * 1000, "ms");
  if (seconds < 119.5) return amount(seconds, "s");
  if (seconds < 119.5 * 60) return format_number("%.0f min", seconds / 60);
  const double hours = seconds / 3600;
  if (hours < 23.95) return amount(hours, "h");
  const auto whole = static_cast<long long>(std::llround(hours));
  return format_text("{} d{}", whole / 24,
                     whole % 24 > 0 && whole < 2400 ? format_text(" {} h", whole % 24) : "");
}

}  // namespace finetune
