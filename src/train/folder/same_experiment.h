// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/base/file_system.h"
#include "finetune/config/load.h"
#include "finetune/state/run_state.h"
#include "train/setup/resume.h"

// Checks whether a command belongs to the run in a folder. All messages name what the run began
// with and what the command asks for.
namespace finetune {

// Compares the weights of model_name_or_path by content with what the checkpoint in `location`
// began with. Returns `location` if a folder that the keys name no longer exists, so that tokenizer
// and config.json are read from the checkpoint; otherwise an empty string. Throws Error(kConfig) if
// the weights differ or a missing folder had another name, and Interrupted.
[[nodiscard]] std::string check_starting_model(const LoadedConfig& config, const RunState& saved,
                                               const FoundRun& location);

// Refuses for a found run what a resume refuses: keys that may not change, model, tokenizer
// and data by content. The folder is the finished model's or a checkpoint's and is not changed;
// tokenizer and config.json are read there where theirs are gone. Files are read or tokenised only
// where they are not as they were when the run saw them. One line names what cannot be compared
// with a finished run because it is no longer on this machine; what an unfinished run cannot
// compare by its record is left to the resume. Throws Error(kConfig) and Interrupted.
void check_same_run(const LoadedConfig& config, const RunState& saved, const FoundRun& run);

// A run as a folder holds it.
struct StoredRun {
  RunState state;
  std::string folder;  // of the finished model or the newest checkpoint
};
// The state that a folder holds; nullopt if it is missing, unreadable or not what the folder's
// manifest records.
[[nodiscard]] std::optional<StoredRun> stored_run_in(FileSystem& files, const std::string& folder);
// The finished run in an output folder or a mirror, or else the run of its newest checkpoint.
// Throws checkpoint::NewerFormat.
[[nodiscard]] std::optional<StoredRun> newest_run_in(FileSystem& files,
                                                     const std::string& directory);

// Returns why the training data of a command differ from the run's: "label_column was unset and is
// title, train_file was 'a.csv', 1 file of 320 bytes, and is 'b.csv', 1 file of 321 bytes". Empty
// if neither keys nor sizes differ. Throws Interrupted.
[[nodiscard]] std::string explain_other_data(const LoadedConfig& config, const RunState& saved);

}  // namespace finetune
