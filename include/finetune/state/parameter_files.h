// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/params/store.h"
#include "finetune/state/state_gather.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/snapshot.h"
#include "finetune/tensor/stored_names.h"

namespace finetune {

// Returns the weights in the format of a checkpoint's model.safetensors: float32, or bfloat16 if
// they are stored so or split (the corrections are in optimizer.safetensors). The store must
// outlive the result. Values are read when they are written; with a snapshot they are the current
// ones. Those whose home is another folder are left out, in all functions here. `gather` brings
// those of divided parameters.
[[nodiscard]] LazyTensors checkpoint_tensors(const ParameterStore& parameters,
                                             Snapshot* snapshot = nullptr,
                                             StateGather* gather = nullptr);
// Returns the weights in the format of the finished model: as above, but split ones are joined to
// float32, some MiB at a time.
[[nodiscard]] LazyTensors exported_tensors(const ParameterStore& parameters,
                                           StateGather* gather = nullptr);

// Whether a checkpoint folder contains the corrections of its bfloat16 weights, from which split
// weights can be restored exactly.
[[nodiscard]] bool has_corrections(const ParameterStore& parameters, FileSystem& files,
                                   const std::string& folder);

struct RestoredParameters {
  bool exact = false;  // the values are the checkpoint's, bit for bit
  // Describes conversions, to be printed; empty if the formats agree.
  std::string line;
};

// Restores every weight of the store whose home is the checkpoint, from a checkpoint folder of any
// weight format, one tensor at a time. Split weights are exact if the folder has their corrections;
// for a store of another format they are joined or rounded to nearest. Throws Error(kData) with
// path and parameter. `names`: what the folder may call tensors.
[[nodiscard]] RestoredParameters restore_parameters(ParameterStore& parameters, FileSystem& files,
                                                    const std::string& folder,
                                                    const StoredNames& names = {});

}  // namespace finetune
