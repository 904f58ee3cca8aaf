// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/data/batch.h"
#include "finetune/task/task.h"

namespace finetune {

// Prediction files of a model, in the format of transformers' run_* scripts. Filled during one pass
// over the data, in its order; keeps only the files' text, never logits.
class PredictionFiles {
 public:
  virtual ~PredictionFiles() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  // Writes the files into the folder, creating it if missing; each file is written atomically.
  virtual void write(FileSystem& files, const std::string& output_dir) const = 0;
};

}  // namespace finetune
