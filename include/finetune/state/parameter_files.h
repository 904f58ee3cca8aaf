// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/kernels/parameter_store.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/snapshot.h"

namespace finetune {

// The weights as a checkpoint's model.safetensors has them: float32, or bfloat16 where they are
// kept so or split (their corrections are in optimizer.safetensors). The store must outlive both
// lists; values are those of the moment at which they are written.
// Where a snapshot is given, it holds them: values are those of now.
[[nodiscard]] LazyTensors checkpoint_tensors(const ParameterStore& parameters,
                                             Snapshot* snapshot = nullptr);
// The weights as the finished model has them: as above, but split ones joined to float32, some MiB
// at a time.
[[nodiscard]] LazyTensors exported_tensors(const ParameterStore& parameters);

// Whether a checkpoint folder holds what its bfloat16 weights lack to be the split ones.
[[nodiscard]] bool has_corrections(const ParameterStore& parameters, FileSystem& files,
                                   const std::string& folder);

struct RestoredParameters {
  bool exact = false;  // the values are the checkpoint's, bit for bit
  // What was converted, to be printed; empty where the formats agree.
  std::string line;
};

// Every weight of the store from a checkpoint folder of whatever weight format, a tensor at a time:
// split weights exactly where the folder has their corrections, and joined or rounded to the
// nearest where the store keeps another format. Throws Error(kData) with path and parameter.
[[nodiscard]] RestoredParameters restore_parameters(ParameterStore& parameters, FileSystem& files,
                                                    const std::string& folder);

}  // namespace finetune
