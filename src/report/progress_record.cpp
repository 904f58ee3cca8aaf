// SPDX-License-Identifier: MIT
#include "finetune/report/progress_record.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/report/session_log.h"

namespace finetune {
namespace {

constexpr double kRecordSeconds = 3;

}  // namespace

ProgressRecord::ProgressRecord(FileSystem& files, std::string path)
    : files_(files), path_(std::move(path)), next_(unix_seconds() + kRecordSeconds) {}

void ProgressRecord::note(const ProgressSnapshot& snapshot) {
  const double now = unix_seconds();
  // A clock that was set back must not suppress records.
  if (is_removed_ || (now < next_ && now > next_ - 2 * kRecordSeconds)) return;
  next_ = now + kRecordSeconds;
  nlohmann::ordered_json record = {{"time", now}};
  record.update(to_json(snapshot));
  try {
    const std::unique_ptr<WritableFile> file = files_.create(path_);
    file->write(record.dump() + "\n");
    file->close();
  } catch (const Error& error) {
    log::debug(error.what());
  }
}

void ProgressRecord::remove() {
  is_removed_ = true;
  try {
    if (files_.exists(path_)) files_.remove_tree(path_);
  } catch (const Error& error) {
    log::debug(error.what());
  }
}

}  // namespace finetune
