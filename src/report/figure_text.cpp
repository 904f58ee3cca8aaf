// SPDX-License-Identifier: MIT
#include "finetune/report/figure_text.h"

#include <cmath>
#include <cstdio>

namespace finetune {

std::string figure_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

}  // namespace finetune
