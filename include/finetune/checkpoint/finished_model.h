// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/bring_back.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/writer.h"

// The finished model: the files next to the checkpoints in an output folder. manifest.json contains
// their sizes and checksums; finetune_state.json, written after it, marks the run as finished.
// Files that manifest.json does not name are the user's.
namespace finetune::checkpoint {

// "eval_results.json", "predictions.txt", ...: metrics and predictions next to the model.
[[nodiscard]] bool is_result_file_name(std::string_view name);

// "model.safetensors", "model-00001-of-00002.safetensors".
[[nodiscard]] bool is_weight_file_name(std::string_view name);

// The model card. Users edit and delete it, so manifest.json does not record it; where an older
// version recorded it, no difference is damage.
inline constexpr char kModelCardFile[] = "README.md";

// Writes a finished model and records what it wrote. All members throw Error(kIo). Requires: the
// lock of the folder.
class ModelExport {
 public:
  ModelExport(FileSystem& files, std::string folder);

  // Replaces the file, completely or not at all. Records it, unless it is the model card.
  void write(const CheckpointFile& file);
  // Records every result file that is in the folder.
  void add_results();
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }  // so far
  // Writes manifest.json and then finetune_state.json, each completely or not at all. The second
  // one is on the disk under a temporary name before: see complete_export().
  void commit(const std::string& run_id, int64_t step, const std::string& state);

 private:
  std::string stage(const CheckpointFile& file);

  FileSystem& files_;
  std::string folder_;
  Manifest manifest_;
};

// Where commit() was killed between its two files, renames the second one, so that the model is
// complete. Does nothing in any other folder. Throws Error(kIo). Requires: the lock of the folder.
void complete_export(FileSystem& files, const std::string& folder);

struct FinishedModel {
  std::optional<Manifest> manifest = {};  // nothing: manifest.json is missing or damaged
  bool has_manifest_file = false;
  std::string problem = {};  // why there is no manifest, as a clause
  // By name, what is wrong with each file that is not as recorded: "'out/config.json' is missing".
  std::map<std::string, std::string> damaged = {};
  uint64_t bytes = 0;  // of all recorded files

  [[nodiscard]] bool is_valid() const { return manifest && damaged.empty(); }
};

// Compares the files with manifest.json: the sizes, and with `verify` every byte. Reads only.
// Throws Error(kIo) where a file cannot be read, Interrupted where a stop is requested.
[[nodiscard]] FinishedModel inspect_finished_model(FileSystem& files, const std::string& folder,
                                                   bool verify);
// The same against another manifest than the folder's own; fills `damaged` and `bytes`.
[[nodiscard]] FinishedModel compare_with_manifest(FileSystem& files, const std::string& folder,
                                                  const Manifest& manifest, bool verify);

// What the folder's manifest.json records of a file; nothing where it does not, or is damaged.
[[nodiscard]] std::optional<FileRecord> recorded_file(FileSystem& files, const std::string& folder,
                                                      const std::string& name);

// Everything that is wrong, in one clause.
[[nodiscard]] std::string describe_damage(const FinishedModel& model);

// Writes manifest.json. Requires: the lock of the folder.
void write_manifest(FileSystem& files, const std::string& folder, const Manifest& manifest);
// The record of a file as it is now. Throws Error(kIo).
[[nodiscard]] FileRecord record_file(FileSystem& files, const std::string& path);

// Renames what has this path to "<path>.bad-<k>", so that nothing is lost where it is replaced.
// Returns the new name; empty where nothing has the path.
std::string quarantine_file(FileSystem& files, const std::string& path);
[[nodiscard]] bool is_quarantined_file_name(std::string_view name);

// Replaces a file of output_dir by the mirror's copy where that one matches the record; what was
// there is quarantined. Returns whether it did; a copy that does not match is reported. Throws
// Error(kIo) where the output folder cannot be written. Requires: both locks.
bool restore_file(const BringBackOptions& options, const std::string& name,
                  const FileRecord& record);

// Result files are replaced after the end: takes their records out of manifest.json, so that a kill
// leaves no contradiction, and commit() records the new files. A damaged one that is not replaced
// keeps its record, and where all_results.json, into which others are merged, is damaged, nothing
// is recorded: the next start of the run repairs it. Does nothing in a folder without a valid
// manifest.json. Requires: the lock of the folder.
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
    std::optional<FileRecord> present = {};  // nothing: the file is missing
  };
  std::map<std::string, Damaged> damaged_;
};

// Throws Error(kCheckpoint) if the weights of a model folder do not match its manifest. Warns about
// a config.json, tokenizer file or data record that does not, because users edit these, and about a
// corrupt manifest. Folders without a manifest, as other programs write them, pass.
void require_undamaged_model(FileSystem& files, const std::string& folder);

}  // namespace finetune::checkpoint
