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
#include "finetune/checkpoint/bring_back.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/mirror.h"
#include "finetune/checkpoint/output_lock.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/config/load.h"
#include "finetune/data/long_step.h"
#include "finetune/report/session_log.h"
#include "finetune/state/run_state.h"
#include "train/folder/space.h"

namespace finetune {

struct FoundRun;

// The locations of a run's files: the output folder, which is local and locked during this object's
// lifetime, and its mirrors. An output_dir on a slow mount is a mirror: the run then works in a
// folder in cache_dir.
class RunStorage {
 public:
  // Takes the lock of the output folder. Throws Error(kBusy), Error(kIo), Error(kConfig). With
  // several processes only the first takes it; the others read without lock and mirrors.
  explicit RunStorage(const LoadedConfig& config, bool is_first = true);

  // Returns the configuration with the output folder in use.
  [[nodiscard]] const LoadedConfig& config() const { return config_; }
  // Returns the output folder as the user named it.
  [[nodiscard]] const std::string& shown_folder() const { return shown_; }
  [[nodiscard]] FileSystem& files() const { return *files_; }
  [[nodiscard]] const std::shared_ptr<FileSystem>& shared_files() const { return files_; }
  [[nodiscard]] size_t mirrors() const { return places_.size(); }
  // Of all mirrors in buckets, in this session.
  [[nodiscard]] ObjectStore::Use bucket_use() const;
  // Returns sessions.jsonl; only rank 0 writes it.
  [[nodiscard]] SessionLog& session_log() { return *session_log_; }

  // Throws where a command does not belong to the run of this state.
  using CheckRun = std::function<void(const RunState& state, const FoundRun& run)>;
  struct Opening {
    bool begins_anew = false;  // --restart: nothing of a mirror is needed
    bool brings_back = false;  // an output folder without checkpoints takes the mirror's
    CheckRun check = {};       // empty: the run in a mirror is not looked at
  };
  // Waits a bounded time for each mirror and takes its lease. Before anything is copied or changed,
  // the run in the mirror is compared: `check` judges a run that would be brought back and one that
  // the output folder does not know. An output folder with its own run refuses a mirror_dir
  // with another run: Error(kConfig). A mirror that cannot be reached is a warning where the output
  // folder holds checkpoints or `begins_anew`, else Error(kIo): it may hold hours of work.
  // Error(kBusy) where another session holds one.
  void open_mirrors(const Opening& opening);
  // Copy what is newer in a mirror to the output folder. Both do nothing without mirrors. The first
  // returns what is wrong with a mirror's finished model that could not be copied, as a clause.
  [[nodiscard]] std::string bring_back_finished();
  void bring_back_checkpoints();
  // Tokenised data: the first copies it from a mirror to a new folder, completely or not at all;
  // the second registers it for copying to the mirrors after the next commit. Without mirrors they
  // do nothing.
  [[nodiscard]] bool fetch_tokens(const std::string& name, const std::string& path,
                                  const ShowStep& show) const;
  void keep_tokens(const std::string& path, const std::string& name);
  // Renames checkpoints after this step to .old, in the output folder and in the mirrors.
  void set_aside(int64_t after_step = -1);
  // Moves the former run's model, results and logs to run.old-<k>, in the output folder and in the
  // mirrors (former_run.h). A mirror that fails is a warning. Throws Error(kIo).
  void set_aside_former_run();
  // Removes the mark that the run is finished, in the output folder and in the mirrors.
  void forget_finished();

  // Returns the output folder and the reachable mirrors with their complete checkpoints of this run
  // and their free space.
  [[nodiscard]] std::vector<SavingFolder> saving_folders(const std::string& run_id) const;

  // During training: call after each commit, from any thread.
  void committed(const std::string& path, const checkpoint::RotationPolicy& policy);
  // Throws Error(kBusy) if another session has taken over the output folder or a mirror. Cheap
  // enough to call at every step.
  void check_ours();
  // Reads the lock's record. Call before each commit, from any thread.
  void check_before_commit() { lock_->check(); }

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

  // Compares every file of the finished model with its checksum and restores missing or damaged
  // files, also of checkpoints, from a mirror; each repair is a warning. Returns what no mirror can
  // restore, as a clause: then the model must be rebuilt from a checkpoint. A run of an older
  // version, without checksums, gets them if its files are consistent.
  [[nodiscard]] std::string verify_finished(const RunState& finished);
  // After that: renames the damaged files to .bad-<k>, so that nothing reads them, and restores
  // damaged checkpoints of the run from mirrors as far as possible.
  void prepare_rebuild(const std::string& run_id);
  // Whether this session replaces a damaged finished model.
  [[nodiscard]] bool is_rebuilding() const { return damaged_.has_value(); }
  // Returns the first weight file of the rebuilt model that differs from that of the finished run;
  // empty: none.
  [[nodiscard]] std::string difference_to_finished(const checkpoint::Manifest& rebuilt) const;
  // If only results are damaged, not the model: gives them up, so that the run counts as finished.
  // Returns their names; empty: the model is damaged too, and nothing has changed.
  [[nodiscard]] std::string give_up_results();

 private:
  struct Place {
    std::string directory;
    std::shared_ptr<FileSystem> files;
    std::unique_ptr<checkpoint::Mirror> mirror;
    bool is_reached = false;
  };

  // Runs `action` in the output folder, and in each mirror that is reached; an error in a mirror is
  // a warning that begins with `failure`.
  void in_folder_and_mirrors(
      const std::function<void(FileSystem& files, const std::string& folder)>& action,
      const std::string& failure);
  void add_mirror(const std::string& directory);
  [[nodiscard]] std::shared_ptr<FileSystem> files_for(const std::string& folder) const;
  [[nodiscard]] checkpoint::BringBackOptions back(const Place& place) const;
  [[nodiscard]] std::optional<checkpoint::CheckpointEntry> newest_here() const;
  void check_run_in(const Place& place, const Opening& opening) const;
  // The function that a mirror calls before it takes a location which could not be reached first.
  [[nodiscard]] std::function<void()> check_of_late(const Place& place) const;
  void copy_logs(checkpoint::Mirror& mirror) const;
  void bring_back_logs(const Place& place) const;
  void copy_tokens() const;
  void copy_results(checkpoint::Mirror& mirror) const;
  // What of another run is in the mirror, "the finished model"; empty: nothing.
  [[nodiscard]] std::string held_of_another(const Place& place) const;
  // Also those that newer ones overtook; those that are there are verified.
  void copy_all_checkpoints(const Place& place) const;
  void open_mirrors_once();
  bool restore_state();
  bool restore_from(const Place& place, const std::string& name,
                    const checkpoint::FileRecord& record) const;
  void record_new_results(const checkpoint::Manifest& manifest);
  std::string repair_finished(checkpoint::FinishedModel model, const RunState& finished);
  std::string adopt_finished(const RunState& finished);
  bool restore_whole_model(const RunState& finished);
  void repair_checkpoints(const std::string& run_id);
  void repair_log(const std::string& name);

  LoadedConfig config_;
  std::string shown_;  // the output folder that the user named
  bool is_first_;
  std::shared_ptr<FileSystem> files_;
  std::vector<Place> places_;
  std::optional<checkpoint::OutputLock> lock_;
  std::optional<SessionLog> session_log_;
  std::vector<std::pair<std::string, std::string>> tokens_;  // folders and their names in mirrors
  std::atomic<bool> has_committed_{false};
  bool mirrors_were_opened_ = false;
  std::set<std::string> known_runs_;  // that wrote to the output folder before this session
  std::optional<checkpoint::FormerEnd> former_end_;
  std::optional<checkpoint::FinishedModel> damaged_;  // what is being rebuilt, with its manifest
};

}  // namespace finetune
