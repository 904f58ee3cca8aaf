// SPDX-License-Identifier: MIT
#include "state/optimizer_source.h"

#include <cmath>

#include "finetune/base/error.h"
#include "finetune/tensor/finite.h"

namespace finetune {
namespace {

bool is_signed_average(std::string_view state) {
  return state == "exp_avg" || state == "state1" || state == "momentum_buffer";
}

}  // namespace

void reject_state(const std::string& path, std::string_view parameter, std::string_view state,
                  const std::string& reason) {
  throw Error(ErrorKind::kData, path + ": the state '" + std::string(state) + "' of '" +
                                    std::string(parameter) + "' " + reason);
}

void check_state_values(const std::string& path, std::string_view parameter,
                        const std::string& state, const Tensor& values) {
  if (values.numel() == 0) return;
  if (values.scalar_type() == at::kChar) {
    // Codes are symmetric: -127 to 127.
    if (values.min().item<int64_t>() < -127) reject_state(path, parameter, state, "holds -128");
    return;
  }
  if (!values.is_floating_point()) return;
  if (!is_finite(values)) {
    reject_state(path, parameter, state, "holds a number that is not finite");
  }
  if (!is_signed_average(state) && values.min().item<double>() < 0.0) {
    reject_state(path, parameter, state, "holds a number that is negative");
  }
}

int64_t checked_updates(const std::string& path, std::string_view parameter, double value) {
  if (!(value >= 0.0 && value <= 0x1p53 && value == std::floor(value))) {
    reject_state(path, parameter, "step", "is no count of updates");
  }
  return static_cast<int64_t>(value);
}

}  // namespace finetune
