// SPDX-License-Identifier: MIT
#include "finetune/report/figure_text.h"

#include <cmath>

#include "finetune/base/text.h"

namespace finetune {

std::string figure_text(double value) {
  if (std::isnan(value)) return "nan";
  return format_number("%.4g", value);
}

}  // namespace finetune
