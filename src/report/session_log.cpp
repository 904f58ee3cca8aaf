// SPDX-License-Identifier: MIT
#include "finetune/report/session_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/report/metrics_file.h"

namespace finetune {

using Json = nlohmann::ordered_json;

SessionLog::SessionLog(FileSystem& files, std::string path)
    : files_(files), path_(std::move(path)) {}

void SessionLog::add(const std::string& event, const Json& values) {
  if (path_.empty()) return;
  Json line = {{"event", event}, {"time", unix_seconds()}};
  line.update(values);
  is_open_ = event == "start" || (is_open_ && event == "rollback");
  try {
    cut_partial_line();
    const std::unique_ptr<WritableFile> file = files_.append(path_);
    file->write(line.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
    if (event != "start") file->sync();  // a power cut just after the end of a session
    file->close();
  } catch (const Error& error) {
    log::debug(std::string(error.what()));
  }
}

void SessionLog::start(Json values, int64_t sessions_at_least) {
  if (path_.empty()) return;
  int64_t started = 0;
  try {
    read_json_lines(files_, path_, [&](Json&& line, uint64_t) {
      started += line.value("event", Json()) == "start" ? 1 : 0;
      has_finished_before_ = has_finished_before_ || line.value("reason", Json()) == "finished";
      return true;
    });
  } catch (const Error& error) {
    log::debug(std::string(error.what()));
  }
  session_ = std::max(started + 1, sessions_at_least);
  run_id_ = values.value("run_id", std::string());
  Json event = {{"session", session_}};
  event.update(values);
  add("start", event);
}

// Removes the partial line that a killed process left.
void SessionLog::cut_partial_line() {
  if (!files_.exists(path_)) return;
  const std::unique_ptr<ReadableFile> file = files_.open(path_);
  const uint64_t size = file->size();
  char last = '\n';
  if (size > 0) file->read_at(size - 1, &last, 1);
  if (last == '\n') return;
  uint64_t complete = 0;
  read_json_lines(files_, path_, [&](Json&&, uint64_t end) {
    complete = end;
    return true;
  });
  files_.truncate(path_, complete);
}

}  // namespace finetune
