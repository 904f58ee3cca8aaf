// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "finetune/base/file_system.h"
#include "finetune/optim/optimizer.h"
#include "finetune/state/state_gather.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/snapshot.h"

// optimizer.safetensors contains states for which transformers has no optimizer.pt. For a kind
// without a TorchFormat: "<parameter>.<state>" and "<parameter>.step" (int64), with the kind's name
// in the metadata under "optimizer"; for several kinds that is "sgd+adamw", and
// "<parameter>.optimizer" has the kind of each parameter. For split weights:
// "<parameter>.correction".
namespace finetune {

[[nodiscard]] bool needs_optimizer_safetensors(const Optimizer& optimizer);

// The file's content; with a snapshot, the tensors' current values. Requires:
// needs_optimizer_safetensors().
struct OptimizerTensors {
  LazyTensors tensors;
  std::map<std::string, std::string> metadata;
};
[[nodiscard]] OptimizerTensors optimizer_to_safetensors(const Optimizer& optimizer,
                                                        Snapshot* snapshot = nullptr,
                                                        StateGather* gather = nullptr);

[[nodiscard]] std::string optimizer_tensors_path(const std::string& folder);  // of a checkpoint
// Opens the file and checks its format version. Throws Error(kData).
[[nodiscard]] SafetensorsFile open_optimizer_tensors(FileSystem& files, const std::string& path);

// "w.correction"
[[nodiscard]] std::string correction_name(const std::string& parameter);

}  // namespace finetune
