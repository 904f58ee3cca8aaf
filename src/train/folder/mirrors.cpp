// SPDX-License-Identifier: MIT
#include "train/folder/mirrors.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/data/token_cache.h"
#include "finetune/report/metrics_file.h"
#include "finetune/report/session_log.h"
#include "train/folder/exports.h"
#include "train/folder/former_run.h"
#include "train/folder/same_experiment.h"
#include "train/setup/resume.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;

constexpr char kLogsFolder[] = "runs";
constexpr char kTokensFolder[] = "tokens";
constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
constexpr double kQuickSeconds = 1;  // shorter waits are not logged
constexpr double kFinishedTimeout = 900;
constexpr double kStoppedTimeout = 300;
// A heartbeat is a request that costs.
constexpr double kBucketHeartbeat = 20;
constexpr double kBucketTimeout = 90;
constexpr double kBucketTrust = 10;

const checkpoint::Report kWarnOfMirror = [](const std::string& line) { log::warning(line); };

uint64_t tree_bytes(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    const uint64_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    if (!error) bytes += size;
  }
  return bytes;
}

checkpoint::CopyCheck check_of_copies(const TrainingArgs& args) {
  if (args.mirror_verify == "read") return checkpoint::CopyCheck::kRead;
  if (args.mirror_verify == "none") return checkpoint::CopyCheck::kNone;
  return checkpoint::CopyCheck::kHash;
}

// Whether the file has no checksum: logs grow, and a model card is edited by its owner.
bool is_log_or_card(const std::string& name) {
  return name == kMetricsFile || name == kSessionsFile || name == checkpoint::kModelCardFile;
}

// The runs that wrote to a folder, as far as it tells: also those that were restarted.
std::set<std::string> runs_known_in(FileSystem& files, const std::string& folder) {
  std::set<std::string> known;
  const auto try_to = [](const auto& look) {
    try {
      look();
    } catch (const Error& error) {
      log::debug(error.what());
    }
  };
  try_to([&] {
    if (!files.exists(folder)) return;
    for (const std::string& name : files.list(folder)) {
      if (!checkpoint::parse_checkpoint_name(name) && !checkpoint::parse_quarantine_name(name))
        continue;
      const std::string path = join_path(join_path(folder, name), checkpoint::kManifestFile);
      try_to([&] {
        if (!files.exists(path)) return;
        known.insert(
            checkpoint::parse_manifest(files.read_all(path, kMaxManifestBytes), path).run_id);
      });
    }
  });
  try_to([&] {
    const std::string sessions = join_path(folder, kSessionsFile);
    if (!files.exists(sessions)) return;
    read_json_lines(files, sessions, [&](const nlohmann::ordered_json& line, uint64_t) {
      const auto run_id = line.find("run_id");
      if (run_id != line.end() && run_id->is_string()) known.insert(run_id->get<std::string>());
      return true;
    });
  });
  if (const auto finished = stored_run_in(files, folder)) known.insert(finished->state.run_id);
  return known;
}

bool holds_checkpoints(FileSystem& files, const std::string& folder) {
  if (!files.exists(folder)) return false;
  const std::vector<std::string> names = files.list(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return checkpoint::parse_checkpoint_name(name).has_value();
  });
}

}  // namespace

Mirrors::Mirrors(const OutputFolder& folder) : folder_(folder) {
  for (const std::string& directory : folder.mirrors()) {
    locations_.push_back(
        {.directory = directory, .files = folder.files_for(directory), .mirror = nullptr});
  }
  if (!locations_.empty()) known_runs_ = runs_known_in(folder.files(), folder.path());
  for (Location& location : locations_) {
    checkpoint::LeaseOptions lease;
    if (location.files->object_store() != nullptr) {
      lease.heartbeat_seconds = kBucketHeartbeat;
      lease.timeout_seconds = kBucketTimeout;
      lease.trust_seconds = kBucketTrust;
    }
    location.mirror = std::make_unique<checkpoint::Mirror>(
        checkpoint::MirrorOptions{.directory = location.directory,
                                  .files = location.files,
                                  .local = folder.shared_files(),
                                  .lease = std::move(lease),
                                  .check = check_of_copies(folder.args()),
                                  .check_late = check_of_late(location)});
  }
}

ObjectStore::Use Mirrors::bucket_use() const {
  ObjectStore::Use sum;
  for (const Location& location : locations_) {
    const ObjectStore* const store = location.files->object_store();
    if (store == nullptr) continue;
    const ObjectStore::Use use = store->use();
    sum.writes += use.writes;
    sum.reads += use.reads;
    sum.sent += use.sent;
    sum.received += use.received;
  }
  return sum;
}

checkpoint::RestoreOptions Mirrors::back(const Location& location) const {
  return {.local = folder_.shared_files(),
          .output_dir = folder_.path(),
          .files = location.files,
          .mirror_dir = location.directory,
          .report = kWarnOfMirror};
}

void Mirrors::check_run_in(const Location& location, const Opening& opening) const {
  std::optional<StoredRun> run;
  try {
    run = newest_run_in(*location.files, location.directory);
  } catch (const checkpoint::NewerFormat&) {
    if (!opening.starts_over) throw;  // --restart renames them
  }
  if (!run) {
    if (opening.starts_over) return;  // --restart copies them first
    const OwnedFolder folder = {
        .path = location.directory,
        .key = location.directory == folder_.shown() ? "output_dir" : "mirror_dir"};
    return refuse_foreign_files(*location.files, folder_.config(), folder);
  }
  // An output_dir on a slow mount is a mirror too, and belongs to the command by its name.
  const bool is_output = location.directory == folder_.shown();
  const bool is_known = is_output || known_runs_.contains(run->state.run_id);
  if (!is_known && !known_runs_.empty()) {
    throw Error(ErrorKind::kConfig,
                format_text("{}: mirror_dir: '{}' holds another run than output_dir '{}' ({} is of "
                            "run {}), and is not changed; name another mirror_dir",
                            folder_.config().where("mirror_dir"), location.directory,
                            folder_.shown(), run->folder, run->state.run_id));
  }
  const bool is_restored = opening.restores && !holds_checkpoints(folder_.files(), folder_.path());
  if (is_known && !is_restored) return;
  FoundRun found{.folder = run->folder};
  if (!is_output) found.way_out = "or name another mirror_dir";
  opening.check(run->state, found);
}

// The mirror's thread may outlive this object, so nothing of it is captured.
std::function<void()> Mirrors::check_of_late(const Location& location) const {
  if (location.directory == folder_.shown()) return {};
  const auto config = std::make_shared<const LoadedConfig>(folder_.config());
  return [config, files = location.files, directory = location.directory, known = known_runs_] {
    std::optional<StoredRun> run;
    try {
      run = newest_run_in(*files, directory);
    } catch (const checkpoint::NewerFormat& error) {
      throw Error(ErrorKind::kBusy, error.what());
    }
    if (!run || known.contains(run->state.run_id)) return;
    try {
      if (known.empty()) return check_fixed_keys(run->state, *config, {.folder = run->folder});
    } catch (const Error& error) {
      log::debug(error.what());
    }
    throw Error(ErrorKind::kBusy, format_text("'{}' holds another run ({} is of run {}), and is "
                                              "not changed; name another mirror_dir",
                                              directory, run->folder, run->state.run_id));
  };
}

void Mirrors::open(const Opening& opening) {
  were_opened_ = true;
  for (Location& location : locations_) {
    try {
      checkpoint::reach_mirror(back(location));
      if (location.directory == folder_.shown())
        known_runs_.merge(runs_known_in(*location.files, folder_.shown()));
      bool is_new = false;
      checkpoint::with_retries(back(location), [&] {
        if (opening.check) check_run_in(location, opening);
        is_new = !location.files->exists(location.directory);
        location.mirror->claim();
      });
      location.is_reached = true;
      if (is_new) log::info("the mirror '" + location.directory + "' is a new folder");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIo) throw;
      const std::string problem =
          "the mirror '" + location.directory + "' cannot be reached: " + error.what();
      if (!opening.starts_over && !holds_checkpoints(folder_.files(), folder_.path())) {
        throw Error(ErrorKind::kIo,
                    problem + "; '" + folder_.path() +
                        "' holds no checkpoint, and the mirror may hold hours of work, so nothing "
                        "is begun: make it reachable and run the same command again, or add "
                        "--restart to begin at step 0");
      }
      log::warning(problem + "; the run continues with what '" + folder_.path() +
                   "' holds, and the mirror is tried again at every save");
    }
  }
}

void Mirrors::open_once() {
  if (!were_opened_) open({});
}

std::optional<CheckpointEntry> Mirrors::newest_here() const {
  try {
    const auto files = interruptible_reads(folder_.shared_files(), "verifying checkpoints");
    return checkpoint::find_newest_good(*files, folder_.path(), kWarnOfMirror);
  } catch (const Error& error) {  // a mirror may have a complete one
    if (error.kind() != ErrorKind::kCheckpoint) throw;
    return std::nullopt;
  }
}

// Restores finetune_state.json, verified with the local manifest or else with a mirror's; the other
// files are verified afterwards.
bool Mirrors::restore_state() {
  const auto record_in = [](FileSystem& files, const std::string& folder) {
    return checkpoint::recorded_file(files, folder, checkpoint::kFinetuneStateFile);
  };
  const std::string& folder = folder_.path();
  const std::optional<checkpoint::FileRecord> here = record_in(folder_.files(), folder);
  // An empty folder is restored as a whole.
  if (!here && !folder_.files().exists(join_path(folder, checkpoint::kManifestFile))) return false;
  return std::ranges::any_of(locations_, [&](const Location& location) {
    if (!location.is_reached) return false;
    try {
      const std::optional<checkpoint::FileRecord> record =
          here ? here : record_in(*location.files, location.directory);
      return record && restore_file(location, checkpoint::kFinetuneStateFile, *record);
    } catch (const Error& error) {
      log::warning("the mirror '" + location.directory + "' cannot be read: " + error.what());
      return false;
    }
  });
}

bool Mirrors::restore_file(const Location& location, const std::string& name,
                           const checkpoint::FileRecord& record) const {
  if (!checkpoint::restore_file(back(location), name, record)) return false;
  log::warning("restored '" + join_path(folder_.path(), name) + "' from the mirror '" +
               location.directory + "'");
  return true;
}

std::string Mirrors::restore_finished() {
  if (restore_state()) return "";
  std::string damage;
  for (const Location& location : locations_) {
    if (!location.is_reached) continue;
    if (!checkpoint::restore_finished(back(location), newest_here(), &damage)) continue;
    log::info("the finished run is restored from '" + location.directory + "'");
    restore_checkpoints();  // to resume from if more steps are asked for
    return "";
  }
  return damage;
}

void Mirrors::restore_checkpoints() {
  for (const Location& location : locations_) {
    if (!location.is_reached) continue;
    const std::optional<CheckpointEntry> newest = newest_here();
    try {
      const std::optional<int64_t> step = checkpoint::restore_newest(back(location), newest);
      if (!step) continue;
      log::info(
          "checkpoint-" + std::to_string(*step) + " is restored from the mirror '" +
          location.directory + "'" +
          (newest ? ", which is ahead of step " + std::to_string(newest->step) + " here" : ""));
    } catch (const Error& error) {
      if (!newest || error.kind() != ErrorKind::kIo) throw;
      log::warning("the mirror '" + location.directory + "' cannot be read: " + error.what() +
                   "; the run resumes from step " + std::to_string(newest->step));
      continue;
    }
    restore_logs(location);
  }
}

void Mirrors::restore_logs(const Location& location) const {
  const std::string logs = join_path(folder_.path(), kLogsFolder);
  if (!folder_.files().exists(logs)) (void)restore_tree(back(location), kLogsFolder, logs);
  for (const char* name : {kMetricsFile, kSessionsFile}) {
    const std::string here = join_path(folder_.path(), name);
    const std::string there = join_path(location.directory, name);
    try {
      if (folder_.files().exists(here) || !location.files->exists(there)) continue;
      folder_.files().write_atomically(here, location.files->read_all(there));
    } catch (const Error& error) {  // the run does not need it
      log::debug(error.what());
    }
  }
}

bool Mirrors::fetch_tokens(const std::string& name, const std::string& path,
                           const ShowStep& show) const {
  for (const Location& location : locations_) {
    if (!location.is_reached) continue;
    checkpoint::RestoreOptions options = back(location);
    options.show = [&](uint64_t copied, uint64_t total) {
      const auto megabytes = [](uint64_t bytes) { return static_cast<int64_t>(bytes / 1'000'000); };
      show({.phase = "fetch tokenised data",
            .unit = "MB",
            .done = megabytes(copied),
            .total = megabytes(total)});
    };
    if (!restore_tree(options, join_path(kTokensFolder, name), path)) continue;
    log::info("tokenised data come from the mirror '" + location.directory + "'");
    return true;
  }
  return false;
}

void Mirrors::keep_tokens(const std::string& path, const std::string& name) {
  const std::pair<std::string, std::string> kept = {path, join_path(kTokensFolder, name)};
  if (std::find(tokens_.begin(), tokens_.end(), kept) == tokens_.end()) tokens_.push_back(kept);
}

void Mirrors::copy_tokens() const {
  for (const Location& location : locations_) {
    std::vector<std::string> used;
    for (const auto& [path, name] : tokens_) {
      location.mirror->copy_tree(path, name);
      used.push_back(file_name(name));
    }
    if (!used.empty()) {
      location.mirror->remove_unused_trees(kTokensFolder, used, TokenCacheOptions().kept_unused);
    }
  }
}

std::vector<SavingFolder> Mirrors::saving_folders(const std::string& run_id) const {
  std::vector<SavingFolder> folders;
  const auto add = [&](FileSystem& files, const std::string& path, bool is_mirror) {
    SavingFolder folder{.path = path, .is_mirror = is_mirror};
    struct stat status = {};
    // If the file system is unknown, the folder gets a number that no other folder has.
    const bool is_known = ::stat(path.c_str(), &status) == 0;
    folder.device = is_known ? uint64_t{status.st_dev} : ~uint64_t{folders.size()};
    try {
      for (const CheckpointEntry& entry : checkpoint::list_checkpoints(files, path, false)) {
        folder.kept += entry.whole && entry.run_id == run_id ? 1 : 0;
      }
      for (const auto& [tokens, name] : tokens_) {
        if (is_mirror && !files.exists(join_path(path, name))) folder.other += tree_bytes(tokens);
      }
      folder.free = files.free_bytes(path);
    } catch (const Error& error) {  // the first save reports it
      log::debug(error.what());
      folder.free = std::numeric_limits<uint64_t>::max();
    }
    folders.push_back(std::move(folder));
  };
  add(folder_.files(), folder_.path(), false);
  for (const Location& location : locations_) {
    if (location.is_reached) add(*location.files, location.directory, true);
  }
  return folders;
}

void Mirrors::committed(const std::string& path, const checkpoint::RotationPolicy& policy) {
  const bool is_first = !has_committed_.exchange(true);
  checkpoint::RotationPolicy of_mirror = policy;
  const std::optional<int64_t> limit = folder_.args().mirror_total_limit;
  if (limit) of_mirror.save_total_limit = limit;
  for (const Location& location : locations_) {
    location.mirror->copy_checkpoint(path, of_mirror);
    copy_logs(*location.mirror);
  }
  if (is_first) copy_tokens();
}

void Mirrors::check_ours() {
  for (const Location& location : locations_) location.mirror->check();
}

void Mirrors::copy_logs(checkpoint::Mirror& mirror) const {
  mirror.copy_tree(join_path(folder_.path(), kLogsFolder), kLogsFolder, false, former_end_);
  for (const char* name : {kMetricsFile, kSessionsFile}) {
    const std::string path = join_path(folder_.path(), name);
    if (folder_.files().exists(path)) mirror.copy_file(path, {}, former_end_);
  }
}

void Mirrors::copy_all_checkpoints(const Location& location) const {
  for (const CheckpointEntry& entry :
       checkpoint::list_checkpoints(folder_.files(), folder_.path(), false)) {
    if (entry.whole && !entry.foreign) location.mirror->copy_older(entry.path);
  }
}

std::string Mirrors::held_of_another(const Location& location) const {
  try {
    const checkpoint::FinishedModel there =
        checkpoint::inspect_finished_model(*location.files, location.directory, false);
    if (there.is_newer) return "the finished model of a newer version";
    const checkpoint::FinishedModel own =
        checkpoint::inspect_finished_model(folder_.files(), folder_.path(), false);
    const std::string here = own.manifest ? own.manifest->run_id : "";
    if (there.manifest && there.manifest->run_id != here) return "the finished model";
    const auto run = newest_run_in(*location.files, location.directory);
    const bool is_known = !run || location.directory == folder_.shown() ||
                          run->state.run_id == here || known_runs_.contains(run->state.run_id);
    return is_known ? "" : file_name(run->folder);
  } catch (const Error& error) {
    log::debug("the mirror '" + location.directory + "' cannot be read: " + error.what());
    return "";
  }
}

void Mirrors::copy_results(checkpoint::Mirror& mirror) const {
  const std::string& folder = folder_.path();
  const checkpoint::FinishedModel model =
      checkpoint::inspect_finished_model(folder_.files(), folder, false);
  const auto copy = [&](const std::string& name) {
    std::optional<checkpoint::FileRecord> record;
    if (model.manifest && name != checkpoint::kModelCardFile) {
      const auto found = model.manifest->files.find(name);
      if (found != model.manifest->files.end()) record = found->second;
    }
    mirror.copy_file(join_path(folder, name), record,
                     is_log_or_card(name) ? former_end_ : std::nullopt);
  };
  bool is_finished = false;
  for (const std::string& name : folder_.files().list(folder)) {
    const bool is_file = folder_.files().type(join_path(folder, name)) == FileType::kFile;
    if (!is_file || !checkpoint::is_checkpoint_file_name(name)) continue;
    if (checkpoint::is_quarantined_file_name(name) || name == checkpoint::kManifestFile) continue;
    if (name == checkpoint::kFinetuneStateFile) {
      is_finished = true;
    } else {
      copy(name);
    }
  }
  if (!is_finished) return;
  std::set<std::string> folders;  // of the model, such as 1_Pooling
  if (model.manifest) {
    for (const auto& item : model.manifest->files) {
      const size_t slash = item.first.find('/');
      if (slash != std::string::npos) folders.insert(item.first.substr(0, slash));
    }
  }
  for (const std::string& name : folders) mirror.copy_tree(join_path(folder, name), name, true);
  // finetune_state.json, which marks the run as finished, is copied last.
  if (model.manifest) mirror.copy_file(join_path(folder, checkpoint::kManifestFile));
  copy(checkpoint::kFinetuneStateFile);
}

bool Mirrors::finish(bool is_finished) {
  if (!is_finished && !has_committed_) return true;
  // The session's limit already leaves time for copies; a signal leaves less.
  const bool by_signal = interrupt::is_requested() && !interrupt::is_moment_reached();
  const double grace = folder_.args().mirror_grace_seconds;
  const double timeout = by_signal ? grace : is_finished ? kFinishedTimeout : kStoppedTimeout;
  // A signal that arrives during the wait limits it like an earlier one.
  std::optional<double> signalled_at;
  const auto give_up = [&] {
    if (by_signal || !interrupt::is_requested() || interrupt::is_moment_reached()) return false;
    if (!signalled_at) signalled_at = now_seconds();
    return now_seconds() > *signalled_at + grace;
  };
  bool is_everywhere = true;
  std::string refusal;
  for (const Location& location : locations_) {
    checkpoint::Mirror& mirror = *location.mirror;
    const auto has_everything = [&] {
      if (mirror.wait(kQuickSeconds)) return true;
      log::info("waiting up to " + std::to_string(static_cast<int>(timeout)) +
                " s until the mirror '" + location.directory + "' has everything");
      return mirror.wait(timeout, give_up);
    };
    const std::string other =
        is_finished && mirror.wait(kQuickSeconds) ? held_of_another(location) : "";
    if (!other.empty()) {
      is_everywhere = false;
      refusal = format_text(
          "the mirror '{}' holds {} of another run, which is not overwritten; "
          "name another mirror_dir, or move that run's files away",
          location.directory, other);
      if (!former_end_) log::error(refusal);
      (void)mirror.finish(0);
      continue;
    }
    copy_logs(mirror);
    if (has_everything() && is_finished) {
      copy_all_checkpoints(location);
      mirror.copy_tree(join_path(folder_.path(), kLogsFolder), kLogsFolder, true, former_end_);
      const std::string exports = join_path(folder_.path(), kExportsFolder);
      if (folder_.files().exists(exports)) mirror.copy_tree(exports, kExportsFolder, true);
      copy_results(mirror);
      (void)has_everything();
    }
    if (mirror.finish(0)) {
      log::info("the mirror '" + location.directory + "' has everything");
    } else {
      is_everywhere = false;
      log::error(
          "'" + location.directory + "' lacks what '" + folder_.path() +
          "' on this machine holds; make the mirror reachable and run the same command again "
          "before you delete this machine");
    }
  }
  if (former_end_ && !refusal.empty()) throw Error(ErrorKind::kConfig, refusal);
  return is_everywhere;
}

}  // namespace finetune
