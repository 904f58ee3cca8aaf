// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/load.h"
#include "finetune/data/file_record.h"
#include "finetune/state/run_state.h"
#include "train/setup/assemble.h"
#include "train/setup/weights_hash.h"

// The input files of a run as recorded in RunState::inputs: enough to recognise them later without
// tokenising or loading anything.
namespace finetune {

inline constexpr char kTrainFileInput[] = "train_file";
inline constexpr char kValidationFileInput[] = "validation_file";
inline constexpr char kWeightsInput[] = "weights";

// Returns the record under one of the names above; nullopt if an earlier version wrote the state.
[[nodiscard]] std::optional<FileRecord> recorded_input(const RunState& saved, const char* name);
// Returns config.json of the model before labels of the data were added; empty if not recorded.
[[nodiscard]] std::string recorded_config(const RunState& saved);

// Returns train_file's paths: one list, or one for each entry of a mixture. Throws as
// expand_files() does.
[[nodiscard]] std::vector<std::vector<std::string>> train_file_groups(const TrainingArgs& args);
// Returns a record of all groups. With `reads_files`, files whose contents the cache does not know
// are hashed; otherwise `contents` may stay empty.
[[nodiscard]] FileRecord record_files(const std::vector<std::vector<std::string>>& groups,
                                      const TokenCacheOptions& cache, bool reads_files);

// Returns the inputs of a run that starts or resumes. `saved`: the checkpoint's, which
// check_identity() and check_starting_model() have compared with the present ones; null at step 0.
// Weights are hashed only at step 0.
[[nodiscard]] nlohmann::ordered_json describe_inputs(const TrainingArgs& args,
                                                     const DataParts& parts, const RunState* saved,
                                                     const ShowStep& show);

}  // namespace finetune
