// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/load.h"
#include "finetune/data/file_record.h"
#include "finetune/state/run_state.h"
#include "train/assemble.h"

// The files that a run is made from, as RunState::inputs keeps them: enough to recognise them later
// without tokenising or loading anything.
namespace finetune {

inline constexpr char kTrainFileInput[] = "train_file";
inline constexpr char kValidationFileInput[] = "validation_file";
inline constexpr char kWeightsInput[] = "weights";

// Where hashes of files are kept between starts.
[[nodiscard]] TokenCacheOptions hash_cache(const TrainingArgs& args, const ShowStep& show);

// What was recorded under one of the names above; nothing where an earlier version wrote the state.
[[nodiscard]] std::optional<FileRecord> recorded_input(const RunState& saved, const char* name);
// config.json of the model before the data added labels; empty where it was not recorded.
[[nodiscard]] std::string recorded_config(const RunState& saved);

// train_file's paths: one list, or one for each entry of a mixture. Throws as expand_files() does.
[[nodiscard]] std::vector<std::vector<std::string>> train_file_groups(const TrainingArgs& args);
// A record of all groups. With `reads_files` the files are hashed where the cache does not know
// their contents; otherwise `contents` may stay empty.
[[nodiscard]] FileRecord record_files(const std::vector<std::vector<std::string>>& groups,
                                      const TokenCacheOptions& cache, bool reads_files);

// The files that hold a model folder's weights. Throws Error(kData) where there are none.
[[nodiscard]] std::vector<std::string> weight_paths(const std::string& folder);
// Of names, types, shapes and values of all tensors, in the order of their names: the same for
// every format and division of the files. Throws Error(kData) and Interrupted.
[[nodiscard]] std::string hash_of_weights(const std::string& folder,
                                          const TokenCacheOptions& cache);

// The inputs of the run that starts or resumes. `saved`: of the checkpoint, which check_identity()
// and check_starting_model() have compared with the present ones; null at step 0. The weights are
// hashed at step 0 alone.
[[nodiscard]] nlohmann::ordered_json describe_inputs(const LoadedConfig& config, const Parts& parts,
                                                     const RunState* saved, const ShowStep& show);

}  // namespace finetune
