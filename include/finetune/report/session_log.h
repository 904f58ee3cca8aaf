// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"

// sessions.jsonl: what happened to a run, one JSON object a line, never cut. Every line has `event`
// and `time` (Unix seconds):
//   start     a session began to train: session, run_id, step, max_steps, host, pid, device, ...
//   rollback  training rolled back: from, to, reason
//   end       it ended by itself: code (the exit code), step, reason
//   error     it ended with a message
// A session without an `end` or `error` was killed, or is running.
namespace finetune {

inline constexpr char kSessionsFile[] = "sessions.jsonl";

// Appends to the file. No member throws because of the disk: a failure costs the line and is
// logged at debug level, for nothing depends on it. Not thread-safe.
class SessionLog {
 public:
  // An empty path: nothing is written.
  SessionLog(FileSystem& files, std::string path);

  // `event`, `time`, then `values`.
  void add(const std::string& event, const nlohmann::ordered_json& values);
  // The `start` event; counts the sessions of this folder, this one included.
  void start(nlohmann::ordered_json values, int64_t sessions_at_least);
  // Whether a session was started and not ended.
  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] int64_t session() const { return session_; }
  // Of the session that was started here; empty before.
  [[nodiscard]] const std::string& run_id() const { return run_id_; }

 private:
  void cut_partial_line();

  FileSystem& files_;
  std::string path_;
  int64_t session_ = 0;
  std::string run_id_;
  bool is_open_ = false;
};

}  // namespace finetune
