// SPDX-License-Identifier: MIT
#include "finetune/state/finite_state.h"

#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/model_tensors.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {
namespace {

std::string clause(const std::string& path, const std::string& name) {
  return file_name(path) + " contains NaN or Inf" + (name.empty() ? "" : " in '" + name + "'");
}

bool is_finite_throughout(const TorchValue& value) {
  if (value.is_stored_tensor()) return is_finite(value.as_stored_tensor().read());
  if (value.is_sequence()) {
    for (const TorchValue& item : value.as_sequence()) {
      if (!is_finite_throughout(item)) return false;
    }
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.as_dict().items) {
      if (!is_finite_throughout(item)) return false;
    }
  }
  return true;
}

std::string search(FileSystem& files, const std::string& folder) {
  const ModelTensors weights = load_model_tensors(files, folder);
  for (const TensorInfo& info : weights.tensors()) {
    if (!is_finite(weights.read(info.name))) return clause(weights.path_of(info.name), info.name);
  }
  const std::string states = join_path(folder, checkpoint::kOptimizerTensorsFile);
  if (files.exists(states)) {
    const SafetensorsFile file = SafetensorsFile::open(files, states);
    for (const TensorInfo& info : file.tensors()) {
      if (!is_finite(file.read(info.name))) return clause(states, info.name);
    }
  }
  const std::string pickled = join_path(folder, checkpoint::kOptimizerFile);
  if (files.exists(pickled) && !is_finite_throughout(open_torch_file(files, pickled))) {
    return clause(pickled, "");
  }
  return "";
}

}  // namespace

std::string nonfinite_part(const Optimizer& optimizer) {
  const std::vector<Parameter>& parameters = optimizer.parameters().parameters();
  for (const Parameter& parameter : parameters) {
    if (!is_finite(parameter.weight.detach())) return "the weight '" + parameter.name + "'";
  }
  for (const Optimizer::Slot& slot : optimizer.slots()) {
    for (const auto& [name, values] : slot.state) {
      if (!values.defined() || is_finite(values)) continue;
      return "the optimizer's state '" + name + "' of '" + parameters[slot.parameter].name + "'";
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
