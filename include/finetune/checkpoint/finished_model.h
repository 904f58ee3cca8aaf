// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/restore.h"
#include "finetune/checkpoint/writer.h"

// The finished model: the files next to the checkpoints in an output folder. manifest.json contains
// their sizes and checksums; finetune_state.json, written after it, marks the run as finished.
// Files that manifest.json does not name are the user's.
namespace finetune::checkpoint {

// "eval_results.json", "predictions.txt", ...: metrics and predictions next to the model.
[[nodiscard]] bool is_result_file_name(std::string_view name);

// Whether the end of a run writes a file of this name into the output folder: the model, its state,
// results.
[[nodiscard]] bool is_run_file_name(std::string_view name);

// "model.safetensors", "model-00001-of-00002.safetensors".
[[nodiscard]] bool is_weight_file_name(std::string_view name);

// The model card. Users edit and delete it, so manifest.json does not record it. Older versions
// recorded it; a difference is ignored.
inline constexpr char kModelCardFile[] = "README.md";

// Writes a finished model and records what it wrote. All members throw Error(kIo). Requires: the
// lock of the folder.
//
// Each file is also recorded in kWrittenFile, before it is put in place. A file that is there, and
// is not as a run wrote it, is the user's or was edited by the user: it is quarantined before it is
// replaced. `accepts_unrecorded`: an earlier version, which had no such record, may have written
// the files that are there.
class ModelExport {
 public:
  ModelExport(FileSystem& files, std::string folder, bool accepts_unrecorded = false);

  // Replaces the file atomically. Records it in the manifest, unless it is the model card.
  void write(const CheckpointFile& file);
  // Whether the file exists and is neither as a run wrote it nor equal to what is being written.
  [[nodiscard]] bool is_of_user(const std::string& name);
  // Records every result file that is in the folder.
  void add_results();
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }  // so far
  // Writes manifest.json and then finetune_state.json, each atomically. finetune_state.json is on
  // disk under a temporary name before manifest.json is replaced: see complete_export().
  void commit(const std::string& run_id, int64_t step, const std::string& state);

 private:
  std::string stage(const CheckpointFile& file);
  void note_written(const std::string& name);
  void remove_former();

  FileSystem& files_;
  std::string folder_;
  bool accepts_unrecorded_;
  Manifest written_;
  Manifest manifest_;
};

// Adds the files that manifest.json names to kWrittenFile. Call before the manifest is deleted
// because the run continues. Throws Error(kIo). Requires: the lock of the folder.
void remember_written(FileSystem& files, const std::string& folder);

// If commit() was killed between its two files, renames the second one, so that the model is
// complete. Does nothing in any other folder. Throws Error(kIo). Requires: the lock of the folder.
void complete_export(FileSystem& files, const std::string& folder);

struct FinishedModel {
  std::optional<Manifest> manifest = {};  // nullopt: manifest.json is missing or damaged
  bool has_manifest_file = false;
  bool is_newer = false;     // a newer version of the program wrote it (NewerFormat)
  std::string problem = {};  // why there is no manifest, as a clause
  // By file name, how a file differs from its record: "'out/config.json' is missing".
  std::map<std::string, std::string> damaged = {};
  uint64_t bytes = 0;  // of all recorded files

  [[nodiscard]] bool is_valid() const { return manifest && damaged.empty(); }
};

// Compares the files with manifest.json: sizes and, with `verify`, checksums. Reads only. Throws
// Error(kIo) if a file cannot be read, Interrupted if a stop is requested.
[[nodiscard]] FinishedModel inspect_finished_model(FileSystem& files, const std::string& folder,
                                                   bool verify);
// The same against another manifest than the folder's; fills `damaged` and `bytes`.
[[nodiscard]] FinishedModel compare_with_manifest(FileSystem& files, const std::string& folder,
                                                  const Manifest& manifest, bool verify);

// Returns a file's record in the folder's manifest.json; nullopt if there is none or the manifest
// is damaged.
[[nodiscard]] std::optional<FileRecord> recorded_file(FileSystem& files, const std::string& folder,
                                                      const std::string& name);

// Describes all problems in one clause.
[[nodiscard]] std::string describe_damage(const FinishedModel& model);

// Writes manifest.json. Requires: the lock of the folder.
void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest);
// Returns the record of a file as it is now. Throws Error(kIo).
[[nodiscard]] FileRecord record_file(FileSystem& files, const std::string& path);

// Renames `path` to "<path>.bad-<k>", so that nothing is lost when it is replaced. Returns the new
// name; empty if `path` does not exist.
std::string quarantine_file(FileSystem& files, const std::string& path);
[[nodiscard]] bool is_quarantined_file_name(std::string_view name);

// Replaces a file of output_dir by the mirror's copy if that copy matches the record; the replaced
// file is quarantined. Returns whether it did; reports a copy that does not match. Throws
// Error(kIo) if the output folder cannot be written. Requires: both locks.
bool restore_file(const RestoreOptions& options, const std::string& name, const FileRecord& record);

// Replacing result files of a finished run: the constructor removes their records from
// manifest.json, so that a kill leaves no contradiction, and commit() records the new files. A
// damaged file that is not replaced keeps its record. If all_results.json is damaged, into which
// results are merged, nothing is recorded: the next start of the run repairs it. Does nothing in a
// folder without a valid manifest.json. Requires: the lock of the folder.
class ResultUpdate {
 public:
  ResultUpdate(FileSystem& files, std::string folder);
  void commit();

 private:
  FileSystem& files_;
  std::string folder_;
  std::optional<Manifest> manifest_;
  struct Damaged {
    FileRecord recorded;
    std::optional<FileRecord> present = {};  // nullopt: the file is missing
  };
  std::map<std::string, Damaged> damaged_;
};

// Throws Error(kCheckpoint) if the weights of a model folder do not match its manifest. Only warns
// about config.json, tokenizer files and data records that do not match, because users edit these,
// and about a corrupt manifest. Folders without a manifest, as other programs write them, are
// accepted.
void require_undamaged_model(FileSystem& files, const std::string& folder);

}  // namespace finetune::checkpoint
