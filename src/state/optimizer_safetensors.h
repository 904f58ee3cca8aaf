// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "finetune/base/file_system.h"
#include "finetune/optim/optimizer.h"
#include "finetune/state/state_gather.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/snapshot.h"

// optimizer.safetensors: what no optimizer.pt of transformers can hold. "<parameter>.<state>" and
// "<parameter>.step" (int64) of a kind without a TorchFormat, whose name is in the metadata under
// "optimizer"; of several kinds that is "sgd+adamw", and "<parameter>.optimizer" has the kind of
// each. "<parameter>.correction" of split weights.
namespace finetune {

[[nodiscard]] bool needs_optimizer_safetensors(const Optimizer& optimizer);

// The file's content; where a snapshot is given, it holds the tensors.
// Requires: needs_optimizer_safetensors().
struct OptimizerTensors {
  LazyTensors tensors;
  std::map<std::string, std::string> metadata;
};
[[nodiscard]] OptimizerTensors optimizer_to_safetensors(const Optimizer& optimizer,
                                                        Snapshot* snapshot = nullptr,
                                                        StateGather* gather = nullptr);

// The file, with its format's version checked. Throws Error(kData).
[[nodiscard]] SafetensorsFile open_optimizer_tensors(FileSystem& files, const std::string& path);

// "w.correction"
[[nodiscard]] std::string correction_name(const std::string& parameter);

}  // namespace finetune
