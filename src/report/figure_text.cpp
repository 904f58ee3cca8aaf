// SPDX-License-Identifier: MIT
#include "finetune/report/figure_text.h"

#include <cmath>
#include <cstdlib>

#include "finetune/base/text.h"

namespace finetune {

std::string figure_text(double value) {
  if (std::isnan(value)) return "nan";
  return format_number("%.4g", value);
}

double rounded_figure(double value) {
  // std::stod throws for denormal numbers.
  return std::strtod(format_number("%.6g", value).c_str(), nullptr);
}

}  // namespace finetune
