// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
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
#include "train/space.h"

namespace finetune {

struct RunState;

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
  // Returns sessions.jsonl; only rank 0 writes it.
  [[nodiscard]] SessionLog& session_log() { return *session_log_; }

  // Throws if a command does not belong to the run with this state in `folder`.
  using CheckRun = std::function<void(const RunState& state, const std::string& folder)>;
  // Waits a limited time for each mirror and takes its lease. If the output folder has no
  // checkpoint, calls `check` with the state that the mirror would bring back, before anything is
  // copied or changed. An unreachable mirror is a warning if the output folder has checkpoints or
  // `may_begin_anew` is set, else Error(kIo), because it may contain hours of work. Error(kBusy) if
  // another session uses a mirror.
  void open_mirrors(bool may_begin_anew, const CheckRun& check = {});
  // Copy what is newer in a mirror to the output folder. Without mirrors they do nothing. The first
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
  // with the timeout of a stop.
  [[nodiscard]] bool finish(bool is_finished);

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

 private:
  struct Place {
    std::string directory;
    std::shared_ptr<FileSystem> files;
    std::unique_ptr<checkpoint::Mirror> mirror;
    bool is_reached = false;
  };

  void add_mirror(const std::string& directory);
  [[nodiscard]] std::shared_ptr<FileSystem> files_for(const std::string& folder) const;
  [[nodiscard]] checkpoint::BringBackOptions back(const Place& place) const;
  [[nodiscard]] std::optional<checkpoint::CheckpointEntry> newest_here() const;
  void check_run_in(const Place& place, const CheckRun& check) const;
  void copy_logs(checkpoint::Mirror& mirror) const;
  void bring_back_logs(const Place& place) const;
  void copy_tokens() const;
  void copy_results(checkpoint::Mirror& mirror) const;
  // Whether a mirror has the finished model of another run.
  [[nodiscard]] bool holds_other_model(const Place& place) const;
  // Copies all checkpoints, also superseded ones, and verifies those that the mirror already has.
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
  std::optional<checkpoint::FinishedModel> damaged_;  // being rebuilt, with its manifest
};

}  // namespace finetune
