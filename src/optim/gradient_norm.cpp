// SPDX-License-Identifier: MIT
#include <cmath>
#include <vector>

#include "finetune/kernels/sum_of_squares.h"
#include "finetune/optim/optimizer.h"

namespace finetune {

double gradient_norm(const ParameterStore& parameters) {
  std::vector<Tensor> gradients;
  for (const Parameter& parameter : parameters.parameters()) {
    if (parameter.gradient.defined()) gradients.push_back(parameter.gradient);
  }
  return std::sqrt(sum_of_all_squares(gradients));
}

}  // namespace finetune
