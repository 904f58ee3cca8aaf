// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "finetune/base/file_system.h"
#include "finetune/base/model_files.h"
#include "finetune/tensor/weight_files.h"

// Builds and parses every name below an output folder. A name parses only if it is exactly what its
// builder writes.
namespace finetune::checkpoint {

using finetune::kConfigFile;
using finetune::kFinetuneStateFile;  // position, generators, ...
using finetune::kModelFile;
using finetune::kModelIndexFile;
inline constexpr char kOptimizerFile[] = "optimizer.pt";
inline constexpr char kOptimizerTensorsFile[] =
    "optimizer.safetensors";  // states for which transformers has no optimizer.pt
inline constexpr char kSchedulerFile[] = "scheduler.pt";
inline constexpr char kScalerFile[] = "scaler.pt";
inline constexpr char kTrainerStateFile[] = "trainer_state.json";
inline constexpr char kManifestFile[] = "manifest.json";          // written last
inline constexpr char kTreeIndexFile[] = ".finetune.files.json";  // index of a mirror's other files
inline constexpr char kLockFile[] = ".finetune.lock";
// What runs wrote into the output folder at their end, in the form of a manifest: see ModelExport.
inline constexpr char kWrittenFile[] = ".finetune.files";

// "checkpoint-500": a committed checkpoint after 500 steps.
[[nodiscard]] std::string checkpoint_name(int64_t step);
[[nodiscard]] std::optional<int64_t> parse_checkpoint_name(std::string_view name);

// A checkpoint renamed so that no resume considers it.
enum class QuarantineReason { kBad, kOld };
struct QuarantineName {
  int64_t step = 0;
  QuarantineReason reason = QuarantineReason::kBad;
  int64_t number = 0;
};
// "checkpoint-500.bad-1": found corrupt. "checkpoint-500.old-1": of a run that was restarted.
[[nodiscard]] std::string quarantine_name(const QuarantineName& name);
[[nodiscard]] std::optional<QuarantineName> parse_quarantine_name(std::string_view name);

// ".tmp-checkpoint-500.<run id>.<random>": being written. ".trash-checkpoint-500.<random>": being
// deleted.
[[nodiscard]] std::string staging_name(int64_t step, std::string_view run_id,
                                       std::string_view random);
[[nodiscard]] std::string trash_name(int64_t step, std::string_view random);
[[nodiscard]] bool is_leftover_name(std::string_view name);  // staging or trash
// ".fetch-checkpoint-500.<run id>": being copied from a mirror; continued if it was interrupted.
[[nodiscard]] std::string fetch_name(int64_t step, std::string_view run_id);
[[nodiscard]] bool is_fetch_name(std::string_view name);
// ".tmp-<file>.<digits>": left behind if FileSystem::write_atomically is killed.
[[nodiscard]] bool is_temporary_file_name(std::string_view name);

// 1 to 64 of [A-Za-z0-9_-]: run ids, and the random parts of folder names.
[[nodiscard]] bool is_identifier(std::string_view text);
[[nodiscard]] std::string random_identifier();  // 16 hexadecimal digits
// Valid names of checkpoint files: 1 to 255 of [A-Za-z0-9._-], not starting with a dot, and the
// same after such a folder and a slash ("1_Pooling/config.json").
[[nodiscard]] bool is_checkpoint_file_name(std::string_view name);
// Such names joined by single slashes: a file below a mirrored folder.
[[nodiscard]] bool is_tree_path(std::string_view path);

// Makes the folder that the name of a checkpoint file has in `folder`, if it has one.
void make_folder_of(FileSystem& files, const std::string& folder, const std::string& name);
// FileSystem::entries() with those of the folders in it, under their names as checkpoint files.
[[nodiscard]] std::map<std::string, FileSystem::Entry> files_below(FileSystem& files,
                                                                   const std::string& folder);

}  // namespace finetune::checkpoint
