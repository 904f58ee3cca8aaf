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
#include "train/space.h"

namespace finetune {

struct FoundRun;
struct RunState;

// Where a run's files lie: the output folder, which is local and locked as long as this lives, and
// its mirrors. An output_dir on a slow mount is one of them: the run then works in a folder below
// cache_dir.
class RunStorage {
 public:
  // Takes the output folder's lock. Throws Error(kBusy), Error(kIo), Error(kConfig). Of several
  // processes the first one alone: the others read, without lock or mirrors.
  explicit RunStorage(const LoadedConfig& config, bool is_first = true);

  // The configuration with the output folder that is worked in.
  [[nodiscard]] const LoadedConfig& config() const { return config_; }
  // The output folder as the user named it.
  [[nodiscard]] const std::string& shown_folder() const { return shown_; }
  [[nodiscard]] FileSystem& files() const { return *files_; }
  [[nodiscard]] const std::shared_ptr<FileSystem>& shared_files() const { return files_; }
  [[nodiscard]] size_t mirrors() const { return places_.size(); }
  // sessions.jsonl; other ranks' is not written.
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
  // the output folder does not know. An output folder with a run of its own refuses a mirror_dir
  // with another run: Error(kConfig). A mirror that cannot be reached is a warning where the output
  // folder holds checkpoints or `begins_anew`, else Error(kIo): it may hold hours of work.
  // Error(kBusy) where another session holds one.
  void open_mirrors(const Opening& opening);
  // Copy what is newer in a mirror to the output folder. Both do nothing without mirrors. The first
  // returns what is wrong with a mirror's finished model that could not be copied, as a clause.
  [[nodiscard]] std::string bring_back_finished();
  void bring_back_checkpoints();
  // Tokenised data: out of a mirror, to a new folder, whole or not at all; and what is to be copied
  // there once something was committed. Without mirrors nothing happens.
  [[nodiscard]] bool fetch_tokens(const std::string& name, const std::string& path,
                                  const ShowStep& show) const;
  void keep_tokens(const std::string& path, const std::string& name);
  // Renames checkpoints after this step to .old, here and in the mirrors.
  void set_aside(int64_t after_step = -1);
  // Takes back that the run is finished, here and in the mirrors.
  void forget_finished();

  // The output folder and the mirrors that were reached, with the complete checkpoints of this run
  // that they have and the space that they have left.
  [[nodiscard]] std::vector<SavingFolder> saving_folders(const std::string& run_id) const;

  // While training. Behind each commit; any thread.
  void committed(const std::string& path, const checkpoint::RotationPolicy& policy);
  // Throws Error(kBusy) where another session has taken over the output folder or a mirror. Costs
  // nothing.
  void check_ours();
  // Reads the record; before each commit, any thread.
  void check_before_commit() { lock_->check(); }

  // After a commit: ends with the output folder's content in the mirrors, or with a warning.
  // `is_finished`: all results too, with a long timeout; else as long as a stop may take.
  [[nodiscard]] bool finish(bool is_finished);

  // Compares every file of the finished model with its checksum and restores from a mirror what is
  // missing or damaged, the checkpoints too; each repair is a warning. Returns what no mirror can
  // restore, as a clause: the model has to be rebuilt from a checkpoint. A run of an older version,
  // without checksums, gets them where its files are consistent.
  [[nodiscard]] std::string verify_finished(const RunState& finished);
  // Then: renames the damaged files to .bad-<k>, so that nothing reads them, and restores damaged
  // checkpoints of the run as far as a mirror can.
  void prepare_rebuild(const std::string& run_id);
  // Whether the present end replaces a damaged finished model.
  [[nodiscard]] bool is_rebuilding() const { return damaged_.has_value(); }
  // The first weight file of the rebuilt model that differs from the finished run's; empty: none.
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

  LoadedConfig config_;
  std::string shown_;  // the output folder that the user named
  bool is_first_;
  std::shared_ptr<FileSystem> files_;
  std::vector<Place> places_;
  std::optional<checkpoint::OutputLock> lock_;
  std::optional<SessionLog> session_log_;
  std::vector<std::pair<std::string, std::string>> tokens_;  // folders and their names in a mirror
  std::atomic<bool> has_committed_{false};
  bool mirrors_were_opened_ = false;
  std::set<std::string> known_runs_;  // that wrote to the output folder before this session
  std::optional<checkpoint::FinishedModel> damaged_;  // what is being rebuilt, with its manifest
};

}  // namespace finetune
