// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/data/batch.h"
#include "finetune/task/task.h"

namespace finetune {

// What a model says of a file's samples, as transformers' run_* scripts write it. Fed during one
// pass over the data, in its order; keeps the text of the files alone, never logits.
class PredictionFiles {
 public:
  virtual ~PredictionFiles() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  // Writes the files into the folder, which is made where it is missing: each whole or not at all.
  virtual void write(FileSystem& files, const std::string& output_dir) const = 0;
};

}  // namespace finetune
