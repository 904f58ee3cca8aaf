// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"

// sessions.jsonl: the events of a run, one JSON object per line, never truncated. Every line has
// `event` and `time` (Unix seconds):
//   start     a session began to train: session, run_id, step, max_steps, host, pid, device, ...;
//             logged_step and logged_time: how far metrics.jsonl was before it was cut at `step`
//   rollback  training rolled back: from, to, reason
//   end       the session ended normally: code (the exit code), step, reason
//   error     the session ended with an error message
// A session without an `end` or `error` was killed, or is running.
namespace finetune {

inline constexpr char kSessionsFile[] = "sessions.jsonl";

// Appends to the file. Disk errors are never thrown: the line is lost and the failure is logged at
// debug level, because nothing depends on it. Not thread-safe.
class SessionLog {
 public:
  // An empty path disables the log.
  SessionLog(FileSystem& files, std::string path);

  // Writes `event`, `time`, then `values`.
  void add(const std::string& event, const nlohmann::ordered_json& values);
  // Writes the `start` event. The session's number counts the sessions of this folder, including
  // this one.
  void start(nlohmann::ordered_json values, int64_t sessions_at_least);
  // Whether a session was started and has not ended.
  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] int64_t session() const { return session_; }
  // The run id of the session started here; empty before.
  [[nodiscard]] const std::string& run_id() const { return run_id_; }
  // Whether an earlier session finished the run, so that its model is in the folder.
  [[nodiscard]] bool has_finished_before() const { return has_finished_before_; }

 private:
  void cut_partial_line();

  FileSystem& files_;
  std::string path_;
  int64_t session_ = 0;
  std::string run_id_;
  bool is_open_ = false;
  bool has_finished_before_ = false;
};

}  // namespace finetune
