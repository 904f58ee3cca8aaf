// SPDX-License-Identifier: MIT
#include "finetune/runs/run_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json_list.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/progress_record.h"
#include "finetune/report/session_log.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;
using checkpoint::Owner;
using Json = nlohmann::ordered_json;

constexpr uint64_t kLongestFile = uint64_t{1} << 30;
constexpr int64_t kSilentSeconds = 300;  // an older lock record has no live owner elsewhere
constexpr double kLookSeconds = 0.5;
// An owner on another machine writes a heartbeat every 10 seconds.
constexpr double kHeartbeatTimeout = 12;
constexpr double kBucketTimeout = 25;  // the heartbeat of a mirror in a bucket is slower
constexpr char kHistory[] = "log_history";

// An object in a file, or an empty one: what is being replaced or damaged is not worth a failure.
// Without the items of its member `list`, which `take` gets; after a failed attempt again.
Json object_in(FileSystem& files, const std::string& path, const std::string& list = "",
               const std::function<void(const Json&)>& take = nullptr) {
  if (files.type(path) != FileType::kFile) return Json::object();
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      Json object =
          parse_json_with_list(files.read_all(path, kLongestFile), path, list,
                               [&](Json&& item) {
                                 if (take && item.is_object()) take(item);
                               },
                               ErrorKind::kData, {.max_bytes = kLongestFile, .allow_nan = true});
      if (object.is_object()) return object;
    } catch (const Error&) {  // it may be being written
      Clock::steady().sleep(0.02);
    }
  }
  return Json::object();
}

std::optional<Owner> owner_in(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kLockFile);
  if (files.type(path) != FileType::kFile) return std::nullopt;
  try {
    return checkpoint::parse_owner(files.read_all(path, 1 << 16));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Whether the record of an owner elsewhere changes, or changed recently.
bool has_heartbeat(FileSystem& files, const std::string& folder, const Owner& owner) {
  const bool is_store = files.object_store() != nullptr;
  const double timeout = is_store ? kBucketTimeout : kHeartbeatTimeout;
  if (is_store) {
    log::info(format_text("'{}' was last used by {}; waiting up to {} s to see whether that runs",
                          folder, describe(owner), static_cast<int>(timeout)));
  }
  struct stat status = {};
  if (!is_store && ::stat(join_path(folder, checkpoint::kLockFile).c_str(), &status) == 0 &&
      static_cast<int64_t>(unix_seconds()) - status.st_mtime > kSilentSeconds) {
    return false;
  }
  for (double waited = 0; waited < timeout; waited += kLookSeconds) {
    interrupt::throw_if_requested("waiting for a heartbeat");
    const std::optional<Owner> now = owner_in(files, folder);
    if (!now) return false;
    if (now->token != owner.token || now->beat != owner.beat) return true;
    Clock::steady().sleep(kLookSeconds);
  }
  return false;
}

RunActivity activity_of(FileSystem& files, const std::string& folder,
                        const std::optional<Owner>& owner) {
  if (!owner) return RunActivity::kIdle;
  switch (checkpoint::state_of(*owner, checkpoint::this_process())) {
    case checkpoint::OwnerState::kAlive:
      return RunActivity::kHere;
    case checkpoint::OwnerState::kDead:
      return RunActivity::kIdle;
    case checkpoint::OwnerState::kRemote:
      return has_heartbeat(files, folder, *owner) ? RunActivity::kElsewhere : RunActivity::kIdle;
  }
  return RunActivity::kIdle;
}

// Reads the events of this run; events of earlier runs in the folder are dropped.
void read_events(RunFolder& run) {
  std::string run_id;
  run.unusable_lines =
      read_json_lines(*run.files, join_path(run.path, kSessionsFile), [&](Json&& event, uint64_t) {
        const Json id = member(event, "run_id");
        // A session that was killed before its first checkpoint had another run id.
        const bool is_over = !run.events.empty() && member(run.events.back(), "code") == 0;
        if (id.is_string() && id != run_id) {
          if (member(event, "is_restart") == true || is_over) run.events.clear();
          run_id = id.get<std::string>();
        }
        run.events.push_back(std::move(event));
        return true;
      });
}

// Whether the run is finished according to transformers' record.
bool reaches_its_end(const Json& trainer) {
  const double step = number_in(trainer, "global_step").value_or(-1);
  return step > 0 && step >= number_in(trainer, "max_steps").value_or(step + 1);
}

void read_trainer(const std::string& folder, RunFolder& run) {
  run.trainer_path = join_path(folder, checkpoint::kTrainerStateFile);
  run.best_loss.reset();
  run.trainer = object_in(*run.files, run.trainer_path, kHistory,
                          [&](const Json& entry) { note_evaluation(entry, run.best_loss); });
}

void read_states(RunFolder& run) {
  run.state = object_in(*run.files, join_path(run.path, checkpoint::kFinetuneStateFile));
  read_trainer(run.path, run);
  run.is_finished = member(run.state, "finished") == true;
  const CheckpointEntry* newest = run.newest_valid();
  run.is_foreign = run.state.empty() && run.events.empty() && !run.owner &&
                   (newest != nullptr ? newest->foreign : !run.trainer.empty());
  const double reached = number_in(run.trainer, "global_step").value_or(-1);
  if (run.is_foreign) run.is_finished = reaches_its_end(run.trainer);
  if (run.is_finished || newest == nullptr) return;
  if (reached >= static_cast<double>(newest->step)) return;
  read_trainer(newest->path, run);
  run.state = object_in(*run.files, join_path(newest->path, checkpoint::kFinetuneStateFile));
  if (run.is_foreign) run.is_finished = reaches_its_end(run.trainer);
}

// What changes when a session starts, saves or ends. Logging changes nothing of it.
std::string stage_of(FileSystem& files, const std::string& folder) {
  std::string stage;
  if (const std::optional<Owner> owner = owner_in(files, folder)) stage = owner->token;
  if (files.object_store() != nullptr) {
    for (const auto& [name, entry] : files.entries(folder)) {
      if (name != checkpoint::kLockFile) {
        stage += format_text(" {} {}", name, entry.bytes.value_or(0));
      }
    }
    return stage;
  }
  for (const std::string& name : files.list(folder)) {
    if (name.starts_with("checkpoint-")) stage += " " + name;
  }
  for (const char* name :
       {kSessionsFile, checkpoint::kFinetuneStateFile, checkpoint::kTrainerStateFile}) {
    struct stat status = {};
    if (::stat(join_path(folder, name).c_str(), &status) != 0) continue;
    stage += format_text(" {} {} {}", static_cast<int64_t>(status.st_ino),
                         static_cast<int64_t>(status.st_size),
                         static_cast<int64_t>(status.st_mtim.tv_nsec));
  }
  return stage;
}

RunFolder read_files(const std::shared_ptr<FileSystem>& shared, const std::string& path,
                     bool verify) {
  FileSystem& files = *shared;
  RunFolder run{.path = path, .files = shared};
  run.owner = owner_in(files, path);
  run.activity = activity_of(files, path, run.owner);
  run.checkpoints = checkpoint::list_checkpoints(files, path, verify);
  for (const std::string& name : files.list(path)) {
    const auto quarantined = checkpoint::parse_quarantine_name(name);
    run.quarantined +=
        quarantined && quarantined->reason == checkpoint::QuarantineReason::kBad ? 1 : 0;
  }
  read_events(run);
  read_states(run);
  if (run.is_running() && run.owner) {
    run.progress = object_in(files, join_path(path, kProgressFile));
    // Ignore the record of an earlier process.
    const double since = static_cast<double>(run.owner->since_unix);
    if (number_in(run.progress, "time").value_or(0) < since) run.progress = Json::object();
  }
  return run;
}

}  // namespace

void note_evaluation(const Json& line, std::optional<RunFolder::BestLoss>& best) {
  const auto loss = number_in(line, "eval_loss");
  const auto step = whole_number_in(line, "step");
  if (!loss || !step || !std::isfinite(*loss) || (best && best->value <= *loss)) return;
  best = {.value = *loss, .step = *step};
}

Json member(const Json& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? Json(nullptr) : *found;
}

std::optional<double> number_of(const Json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<int64_t> whole_number_of(const Json& value) {
  const std::optional<double> number = number_of(value);
  if (!number || !(*number >= 0 && *number <= 9007199254740992.0)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<double> number_in(const Json& object, const std::string& name) {
  return number_of(member(object, name));
}

std::optional<int64_t> whole_number_in(const Json& object, const std::string& name) {
  return whole_number_of(member(object, name));
}

void for_each_history_entry(const RunFolder& run, const std::function<void(const Json&)>& take) {
  FileSystem& files = *run.files;
  try {
    if (files.type(run.trainer_path) != FileType::kFile) return;
    (void)parse_json_with_list(files.read_all(run.trainer_path, kLongestFile), run.trainer_path,
                               kHistory,
                               [&](Json&& entry) {
                                 if (entry.is_object()) take(entry);
                               },
                               ErrorKind::kData, {.max_bytes = kLongestFile, .allow_nan = true});
  } catch (const Error&) {  // damaged, or being replaced
  }
}

const CheckpointEntry* RunFolder::newest_valid() const {
  for (auto entry = checkpoints.rbegin(); entry != checkpoints.rend(); ++entry) {
    if (entry->whole) return &*entry;
  }
  return nullptr;
}

Json RunFolder::config() const {
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (member(*event, "config").is_object()) return (*event)["config"];
  }
  const Json kept = member(state, "config");
  return kept.is_object() ? kept : Json::object();
}

RunFolder read_run_folder(const std::string& path, bool verify) {
  const std::shared_ptr<FileSystem> shared = checkpoint::files_of_location(path);
  FileSystem& files = *shared;
  struct stat status = {};
  if (files.object_store() == nullptr) {
    if (::stat(path.c_str(), &status) != 0) {
      throw Error(ErrorKind::kUsage, "there is no folder '" + path + "'; name a run's output_dir");
    }
    if (!S_ISDIR(status.st_mode)) {
      throw Error(ErrorKind::kUsage, "'" + path + "' is not a folder; name a run's output_dir");
    }
  }
  // A run that saves faster than its files are read is shown as the last attempt found it.
  constexpr int kAttempts = 5;
  std::string before = stage_of(files, path);
  RunFolder run = read_files(shared, path, verify);
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    const std::string after = stage_of(files, path);
    if (after == before) break;
    before = after;
    run = read_files(shared, path, verify);
  }
  const bool is_run = run.owner || !run.checkpoints.empty() || run.quarantined > 0 ||
                      !run.events.empty() || !run.state.empty() || !run.trainer.empty() ||
                      files.exists(join_path(path, kMetricsFile)) ||
                      files.exists(join_path(path, kProgressFile));  // before the first step
  if (!is_run) {
    throw Error(ErrorKind::kUsage,
                "there is no run in '" + path +
                    "': no checkpoint, log or lock; name the output_dir of a training, or its "
                    "mirror_dir");
  }
  return run;
}

}  // namespace finetune
