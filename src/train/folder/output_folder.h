// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/output_lock.h"
#include "finetune/config/load.h"
#include "finetune/report/session_log.h"

namespace finetune {

// The folder that a run works in, which is local and locked during this object's lifetime. An
// output_dir on a slow mount is a mirror: the run then works in a folder in cache_dir.
class OutputFolder {
 public:
  // Takes the lock. Throws Error(kBusy), Error(kIo), Error(kConfig). With several processes only
  // the first takes it; the others read without lock and mirrors.
  explicit OutputFolder(const LoadedConfig& config, bool is_first = true);

  // The configuration with the folder in use.
  [[nodiscard]] const LoadedConfig& config() const { return config_; }
  [[nodiscard]] const TrainingArgs& args() const { return config_.args; }
  [[nodiscard]] const std::string& path() const { return config_.args.output_dir; }
  // As the user named it.
  [[nodiscard]] const std::string& shown() const { return shown_; }
  [[nodiscard]] bool is_first() const { return is_first_; }
  [[nodiscard]] FileSystem& files() const { return *files_; }
  [[nodiscard]] const std::shared_ptr<FileSystem>& shared_files() const { return files_; }
  // Returns sessions.jsonl; only rank 0 writes it.
  [[nodiscard]] SessionLog& session_log() { return *session_log_; }

  // The folders and buckets that the run is copied to; empty but for the first process.
  [[nodiscard]] const std::vector<std::string>& mirrors() const { return mirrors_; }
  [[nodiscard]] std::shared_ptr<FileSystem> files_for(const std::string& folder) const;

  // Throws Error(kBusy) if another session has taken over the folder. Cheap enough to call at every
  // step.
  void check_ours();
  // Reads the lock's record. Call before each commit, from any thread.
  void check_before_commit() { lock_->check(); }

 private:
  LoadedConfig config_;
  std::string shown_;
  bool is_first_;
  std::shared_ptr<FileSystem> files_;
  std::vector<std::string> mirrors_;
  std::optional<checkpoint::OutputLock> lock_;
  std::optional<SessionLog> session_log_;
};

}  // namespace finetune
