// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/base/model_files.h"
#include "finetune/data/columns.h"
#include "finetune/data/data_files.h"

namespace finetune {

// Properties of a model's training data that later uses of the model need: a small file in the
// model's folder and in each checkpoint, which is copied with the model.
struct DataRecord {
  std::string task = {};  // the configuration's
  ColumnNames columns = {};
  std::vector<double> class_weights = {};  // by label, as used in the loss; empty: none
  ReadingOptions reading = {};             // of delimited text, as given by the keys

  [[nodiscard]] bool empty() const { return columns.empty() && class_weights.empty(); }
  [[nodiscard]] std::string to_text() const;
};

// Returns the record in a model's folder; for a folder written by an earlier version, the columns
// in its finetune_state.json. nullopt if there is neither. Throws Error(kData) for a damaged
// record.
[[nodiscard]] std::optional<DataRecord> read_data_record(const std::string& folder);

}  // namespace finetune
