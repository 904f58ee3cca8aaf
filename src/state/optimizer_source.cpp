// SPDX-License-Identifier: MIT
#include "state/optimizer_source.h"

#include <cmath>

#include "finetune/base/error.h"
#include "finetune/tensor/finite.h"

namespace finetune {

void reject_state(const std::string& path, std::string_view parameter, std::string_view state,
                  const std::string& reason) {
  throw Error(ErrorKind::kData, path + ": the state '" + std::string(state) + "' of '" +
                                    std::string(parameter) + "' " + reason);
}

void check_state_values(const std::string& path, std::string_view parameter, std::string_view state,
                        const Tensor& values, bool is_signed) {
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
  if (!is_signed && values.min().item<double>() < 0.0) {
    reject_state(path, parameter, state, "holds a number that is negative");
  }
}

OptimizerOptions options_for(const Optimizer& optimizer, const Optimizer::Slot& slot,
                             const OptimizerKind& kind) {
  OptimizerOptions options = optimizer.options_of(slot);
  options.kind = kind.name;
  return options;
}

const Parameter& OptimizerSource::parameter(size_t slot) const {
  return optimizer_.parameters().parameters()[optimizer_.slots()[slot].parameter];
}

std::vector<StateTensor> OptimizerSource::tensors(size_t slot, bool is_8bit) const {
  return kind(slot).state(parameter(slot).handle.sizes(), is_8bit,
                          options_for(optimizer_, optimizer_.slots()[slot], kind(slot)));
}

void OptimizerSource::reject(size_t slot, std::string_view state, const std::string& reason) const {
  reject_state(path_, name(slot), state, reason);
}

void OptimizerSource::check_values(size_t slot, const StateTensor& state,
                                   const Tensor& values) const {
  check_state_values(path_, name(slot), state.name, values, state.is_signed);
}

int64_t OptimizerSource::checked_updates(size_t slot, double value) const {
  if (!(value >= 0.0 && value <= 0x1p53 && value == std::floor(value))) {
    reject(slot, "step", "is no count of updates");
  }
  return static_cast<int64_t>(value);
}

}  // namespace finetune
