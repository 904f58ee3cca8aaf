// SPDX-License-Identifier: MIT
#include <cmath>

#include "finetune/kernels/sum_of_squares.h"
#include "finetune/optim/optimizer.h"

namespace finetune {

double gradient_norm(const ParameterStore& parameters) {
  double sum = 0.0;
  for (const Parameter& parameter : parameters.parameters()) {
    if (parameter.gradient.defined()) sum += sum_of_squares(parameter.gradient);
  }
  return std::sqrt(sum);
}

}  // namespace finetune
