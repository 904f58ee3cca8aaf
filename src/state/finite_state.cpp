// SPDX-License-Identifier: MIT
#include "finetune/state/finite_state.h"

#include "finetune/base/error.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/model_tensors.h"

namespace finetune {
namespace {

std::string clause(const std::string& path, const std::string& name) {
  return file_name(path) + " contains NaN or Inf" + (name.empty() ? "" : " in '" + name + "'");
}

std::string search(FileSystem& files, const std::string& folder) {
  const ModelTensors weights = load_model_tensors(files, folder);
  for (const TensorInfo& info : weights.tensors()) {
    if (!is_finite(weights.read(info.name))) return clause(weights.path_of(info.name), info.name);
  }
  const auto state = find_nonfinite_state(files, folder);
  if (state) return clause(state->path, state->tensor);
  return "";
}

}  // namespace

std::string nonfinite_part(const Optimizer& optimizer) {
  const std::vector<Parameter>& parameters = optimizer.parameters().parameters();
  for (const Parameter& parameter : parameters) {
    if (!is_finite(parameter.weight.detach())) return "the weight '" + parameter.name() + "'";
  }
  for (const Optimizer::Slot& slot : optimizer.slots()) {
    for (const auto& [name, values] : slot.state) {
      if (!values.defined() || is_finite(values)) continue;
      return "the optimizer's state '" + name + "' of '" + parameters[slot.parameter].name() + "'";
    }
  }
  return "";
}

std::string nonfinite_in_files(FileSystem& files, const std::string& folder) {
  try {
    return search(files, folder);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace finetune
