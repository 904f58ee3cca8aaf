// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/load.h"
#include "finetune/state/run_state.h"
#include "train/resume.h"

// Whether a command belongs to the run that a folder holds. All messages name what the run began
// with and what the command says.
namespace finetune {

// Compares model_name_or_path with what `place`, a checkpoint, began with: the weights by content.
// Returns the folder that tokenizer and config.json are taken from instead where a folder that the
// keys name is gone (`place`), else an empty string. Throws Error(kConfig) where the weights are
// others or a folder of another name is missing, and Interrupted.
[[nodiscard]] std::string check_starting_model(const LoadedConfig& config, const RunState& saved,
                                               const FoundRun& place);

// Refuses for a found run what a resume refuses: keys that may not change, model, tokenizer
// and data by content. The folder is the finished model's or a checkpoint's and is not changed;
// tokenizer and config.json are read there where theirs are gone. Files are read or tokenised only
// where they are not as they were when the run saw them. One line names what cannot be compared
// with a finished run because it is no longer on this machine; what an unfinished run cannot
// compare by its record is left to the resume. Throws Error(kConfig) and Interrupted.
void check_same_run(const LoadedConfig& config, const RunState& saved, const FoundRun& run);

// Why the training data of a command differ from the run's: "label_column was unset and is title,
// train_file was 'a.csv', 1 file of 320 bytes, and is 'b.csv', 1 file of 321 bytes". Empty where
// neither keys nor sizes differ. Throws Interrupted.
[[nodiscard]] std::string explain_other_data(const LoadedConfig& config, const RunState& saved);

}  // namespace finetune
