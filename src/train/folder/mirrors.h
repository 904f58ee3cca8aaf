// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/mirror.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/checkpoint/restore.h"
#include "finetune/data/long_step.h"
#include "finetune/state/run_state.h"
#include "train/folder/output_folder.h"
#include "train/folder/space.h"

namespace finetune {

struct FoundRun;

// The copies of an output folder: mirror_dir, and an output_dir on a slow mount. Without any, every
// function does nothing.
class Mirrors {
 public:
  struct Location {
    std::string directory;
    std::shared_ptr<FileSystem> files;
    std::unique_ptr<checkpoint::Mirror> mirror;
    bool is_reached = false;
  };

  // `folder` must outlive this object.
  explicit Mirrors(const OutputFolder& folder);

  [[nodiscard]] const std::vector<Location>& locations() const { return locations_; }
  [[nodiscard]] size_t size() const { return locations_.size(); }
  // Of all mirrors in buckets, in this session.
  [[nodiscard]] ObjectStore::Use bucket_use() const;

  // Throws where a command does not belong to the run of this state.
  using CheckRun = std::function<void(const RunState& state, const FoundRun& run)>;
  struct Opening {
    bool starts_over = false;  // --restart: nothing of a mirror is needed
    bool restores = false;     // an output folder without checkpoints takes the mirror's
    CheckRun check = {};       // empty: the run in a mirror is not looked at
  };
  // Waits a bounded time for each mirror and takes its lease. Before anything is copied or changed,
  // the run in the mirror is compared: `check` judges a run that would be restored and one that
  // the output folder does not know. An output folder with its own run refuses a mirror_dir
  // with another run: Error(kConfig). A mirror that cannot be reached is a warning where the output
  // folder holds checkpoints or `starts_over`, else Error(kIo): it may hold hours of work.
  // Error(kBusy) where another session holds one.
  void open(const Opening& opening);
  // The same without a check, unless open() was called.
  void open_once();

  // Copy what is newer in a mirror to the output folder. The first returns what is wrong with a
  // mirror's finished model that could not be copied, as a clause.
  [[nodiscard]] std::string restore_finished();
  void restore_checkpoints();
  // Restores a file with this checksum from a mirror that is reached; false: it has no such file.
  bool restore_file(const Location& location, const std::string& name,
                    const checkpoint::FileRecord& record) const;
  // The options to restore from a mirror.
  [[nodiscard]] checkpoint::RestoreOptions back(const Location& location) const;
  // Tokenised data: the first copies it from a mirror to a new folder, completely or not at all;
  // the second registers it for copying to the mirrors after the next commit.
  [[nodiscard]] bool fetch_tokens(const std::string& name, const std::string& path,
                                  const ShowStep& show) const;
  void keep_tokens(const std::string& path, const std::string& name);

  // Returns the output folder and the reachable mirrors with their complete checkpoints of this run
  // and their free space.
  [[nodiscard]] std::vector<SavingFolder> saving_folders(const std::string& run_id) const;

  // During training: call after each commit, from any thread.
  void committed(const std::string& path, const checkpoint::RotationPolicy& policy);
  // Throws Error(kBusy) if another session has taken over a mirror. Cheap enough to call at every
  // step.
  void check_ours();

  // Call after the last commit: returns whether the mirrors have the output folder's content; logs
  // a warning otherwise. `is_finished`: also copies all results, with a long timeout; otherwise
  // with the timeout of a stop. Throws Error(kConfig) if a mirror holds another run and this run
  // had ended before the session.
  [[nodiscard]] bool finish(bool is_finished);
  // The run had ended before this session: finish() does not replace the mirrors' copies of its
  // logs and model card by damaged ones.
  void note_former_end(const RunState& finished) {
    former_end_ = {.run_id = finished.run_id, .step = finished.step};
  }

 private:
  [[nodiscard]] std::optional<checkpoint::CheckpointEntry> newest_here() const;
  void check_run_in(const Location& location, const Opening& opening) const;
  // The function that a mirror calls before it takes a location which could not be reached first.
  [[nodiscard]] std::function<void()> check_of_late(const Location& location) const;
  bool restore_state();
  void restore_logs(const Location& location) const;
  void copy_logs(checkpoint::Mirror& mirror) const;
  void copy_tokens() const;
  void copy_results(checkpoint::Mirror& mirror) const;
  // Copies superseded checkpoints too; verifies those that the mirror already has.
  void copy_all_checkpoints(const Location& location) const;
  // Names the content of another run in the mirror ("the finished model"); empty if none.
  [[nodiscard]] std::string held_of_another(const Location& location) const;

  const OutputFolder& folder_;
  std::vector<Location> locations_;
  std::vector<std::pair<std::string, std::string>> tokens_;  // folders and their names in mirrors
  std::atomic<bool> has_committed_{false};
  bool were_opened_ = false;
  std::set<std::string> known_runs_;  // that wrote to the output folder before this session
  std::optional<checkpoint::FormerEnd> former_end_;
};

}  // namespace finetune
