// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/data/columns.h"
#include "finetune/data/data_files.h"

namespace finetune {

// What a model was trained on, as far as its later users need it: a small file in the model's
// folder and in each checkpoint, which is copied with the model.
struct DataRecord {
  std::string task = {};  // the configuration's
  ColumnNames columns = {};
  std::vector<double> class_weights = {};  // of each label, as the loss took them; empty: none
  ReadingOptions reading = {};             // of delimited text, as the keys named it

  [[nodiscard]] bool empty() const { return columns.empty() && class_weights.empty(); }
  [[nodiscard]] std::string to_text() const;
};

inline constexpr char kDataRecordFile[] = "finetune_data.json";

// The record of a model's folder; of a folder that an earlier version wrote, the columns that its
// finetune_state.json names. Nothing where there is neither. Throws Error(kData) for a damaged one.
[[nodiscard]] std::optional<DataRecord> read_data_record(const std::string& folder);

}  // namespace finetune
