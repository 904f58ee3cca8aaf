// SPDX-License-Identifier: MIT
#include "train/folder/run_storage.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/interruptible_reads.h"
#include "finetune/base/log.h"
#include "finetune/base/mount.h"
#include "finetune/base/text.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/bucket.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/data/token_cache.h"
#include "finetune/report/metrics_file.h"
#include "finetune/state/run_state.h"
#include "train/folder/former_run.h"
#include "train/folder/same_experiment.h"
#include "train/setup/resume.h"

namespace finetune {
namespace {

using checkpoint::CheckpointEntry;

constexpr char kLogsFolder[] = "runs";
constexpr char kTokensFolder[] = "tokens";
constexpr uint64_t kMaxStateBytes = uint64_t{64} << 20;
constexpr double kQuickSeconds = 1;  // shorter waits are not logged
constexpr double kFinishedPatience = 900;
constexpr double kStoppedPatience = 300;
// A heartbeat is a request that costs.
constexpr double kBucketHeartbeat = 20;
constexpr double kBucketPatience = 90;
constexpr double kBucketTrust = 10;

const checkpoint::Report kWarnOfStorage = [](const std::string& line) { log::warning(line); };

std::optional<Mount> slow_mount(const std::string& path) {
  std::optional<Mount> mount = mount_of(path);
  return mount && is_remote_type(mount->type) ? mount : std::nullopt;
}

std::string local_folder_for(const TrainingArgs& args) {
  return join_path(join_path(args.cache_dir, "runs"), hash_hex(resolved_path(args.output_dir)));
}

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

// A run as a folder holds it.
struct StoredRun {
  RunState state;
  std::string folder;  // of the finished model or the newest checkpoint
};

std::optional<StoredRun> stored_in(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, checkpoint::kFinetuneStateFile);
  try {
    if (!files.exists(path)) return std::nullopt;
    return StoredRun{.state = RunState::parse(files.read_all(path, kMaxStateBytes), path),
                     .folder = folder};
  } catch (const Error& error) {  // what reads it later reports it
    log::debug(error.what());
    return std::nullopt;
  }
}

std::optional<StoredRun> newest_run_in(FileSystem& files, const std::string& directory) {
  std::optional<StoredRun> finished = stored_in(files, directory);
  if (finished && finished->state.finished) return finished;
  std::vector<CheckpointEntry> entries;
  if (files.exists(directory)) entries = checkpoint::list_checkpoints(files, directory, false);
  std::reverse(entries.begin(), entries.end());
  for (const CheckpointEntry& entry : entries) {
    if (!entry.whole || entry.foreign) continue;
    if (std::optional<StoredRun> run = stored_in(files, entry.path)) return run;
  }
  return std::nullopt;
}

}  // namespace

void check_output_folder(const LoadedConfig& config) {
  const TrainingArgs& args = config.args;
  if (args.resume_from_checkpoint != "auto") return;
  const std::optional<StoredRun> run = newest_run_in(FileSystem::local(), args.output_dir);
  if (run) check_same_run(config, run->state, {.folder = run->folder});
}

namespace {

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
      if (!checkpoint::parse_checkpoint_name(name) && !checkpoint::parse_aside_name(name)) continue;
      const std::string path = join_path(join_path(folder, name), checkpoint::kManifestFile);
      try_to([&] {
        if (!files.exists(path)) return;
        known.insert(checkpoint::parse_manifest(files.read_all(path, kMaxStateBytes), path).run_id);
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
  if (const auto finished = stored_in(files, folder)) known.insert(finished->state.run_id);
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

RunStorage::RunStorage(const LoadedConfig& config, bool is_first)
    : config_(config), shown_(config.args.output_dir), is_first_(is_first) {
  TrainingArgs& args = config_.args;
  const std::optional<Mount> slow = slow_mount(args.output_dir);
  if (slow && !slow_mount(args.cache_dir)) {
    add_mirror(args.output_dir);
    args.output_dir = local_folder_for(config.args);
    log::info("output_dir '" + shown_ + "' is on a slow mount (" + slow->type +
              "): the run works in '" + args.output_dir + "' and copies there in the background");
  } else if (slow) {
    log::warning("output_dir '" + shown_ + "' is on a slow mount (" + slow->type +
                 "), and so does cache_dir: training waits for it and has no second place; set "
                 "cache_dir to a local folder");
  }
  if (args.mirror_dir && checkpoint::is_bucket(*args.mirror_dir)) {
    const std::string problem = checkpoint::problem_of_bucket(*args.mirror_dir);
    if (!problem.empty()) {
      refuse_key(config, "mirror_dir", "'" + *args.mirror_dir + "' " + problem);
    }
    if (is_first_) add_mirror(*args.mirror_dir);
  } else if (args.mirror_dir) {
    if (resolved_path(*args.mirror_dir) == resolved_path(shown_)) {
      if (places_.empty()) {
        throw Error(ErrorKind::kConfig, config.where("mirror_dir") +
                                            ": mirror_dir: it is the same folder as output_dir; "
                                            "name another one");
      }
    } else {
      add_mirror(*args.mirror_dir);
    }
  }
  files_ = files_for(args.output_dir);
  session_log_.emplace(*files_, is_first_ ? join_path(args.output_dir, kSessionsFile) : "");
  if (!is_first_) {
    places_.clear();
    return;
  }
  lock_.emplace(args.output_dir, checkpoint::LeaseOptions{.shown = shown_});
  if (!places_.empty()) known_runs_ = runs_known_in(*files_, args.output_dir);
  for (Place& place : places_) {
    checkpoint::LeaseOptions lease;
    if (place.files->object_store() != nullptr) {
      lease.heartbeat_seconds = kBucketHeartbeat;
      lease.patience_seconds = kBucketPatience;
      lease.trust_seconds = kBucketTrust;
    }
    place.mirror = std::make_unique<checkpoint::Mirror>(
        checkpoint::MirrorOptions{.directory = place.directory,
                                  .files = place.files,
                                  .local = files_,
                                  .lease = std::move(lease),
                                  .check = check_of_copies(args),
                                  .check_late = check_of_late(place)});
  }
}

void RunStorage::add_mirror(const std::string& directory) {
  places_.push_back({.directory = directory, .files = files_for(directory), .mirror = nullptr});
}

std::shared_ptr<FileSystem> RunStorage::files_for(const std::string& folder) const {
  if (checkpoint::is_bucket(folder)) return checkpoint::bucket_files(folder);
  const std::string& choice = config_.args.trash_safe_delete;
  const bool empties = choice == "true" || (choice == "auto" && slow_mount(folder));
  return empties ? trash_safe(shared_local_files()) : shared_local_files();
}

ObjectStore::Use RunStorage::bucket_use() const {
  ObjectStore::Use sum;
  for (const Place& place : places_) {
    const ObjectStore* const store = place.files->object_store();
    if (store == nullptr) continue;
    const ObjectStore::Use use = store->use();
    sum.writes += use.writes;
    sum.reads += use.reads;
    sum.sent += use.sent;
    sum.received += use.received;
  }
  return sum;
}

checkpoint::BringBackOptions RunStorage::back(const Place& place) const {
  return {.local = files_,
          .output_dir = config_.args.output_dir,
          .files = place.files,
          .mirror_dir = place.directory,
          .report = kWarnOfStorage};
}

void RunStorage::check_run_in(const Place& place, const Opening& opening) const {
  const std::optional<StoredRun> run = newest_run_in(*place.files, place.directory);
  if (!run) {
    if (opening.begins_anew) return;  // --restart copies them first
    const OwnedFolder folder = {.path = place.directory,
                                .key = place.directory == shown_ ? "output_dir" : "mirror_dir"};
    return refuse_foreign_files(*place.files, config_, folder);
  }
  // An output_dir on a slow mount is a mirror too, and belongs to the command by its name.
  const bool is_output = place.directory == shown_;
  const bool is_known = is_output || known_runs_.contains(run->state.run_id);
  if (!is_known && !known_runs_.empty()) {
    throw Error(ErrorKind::kConfig,
                format_text("{}: mirror_dir: '{}' holds another run than output_dir '{}' ({} is of "
                            "run {}), and is not changed; name another mirror_dir",
                            config_.where("mirror_dir"), place.directory, shown_, run->folder,
                            run->state.run_id));
  }
  const bool is_brought_back =
      opening.brings_back && !holds_checkpoints(*files_, config_.args.output_dir);
  if (is_known && !is_brought_back) return;
  FoundRun found{.folder = run->folder};
  if (!is_output) found.way_out = "or name another mirror_dir";
  opening.check(run->state, found);
}

// The mirror's thread may outlive this object, so nothing of it is captured.
std::function<void()> RunStorage::check_of_late(const Place& place) const {
  if (place.directory == shown_) return {};
  const auto config = std::make_shared<const LoadedConfig>(config_);
  return [config, files = place.files, directory = place.directory, known = known_runs_] {
    const std::optional<StoredRun> run = newest_run_in(*files, directory);
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

void RunStorage::open_mirrors(const Opening& opening) {
  mirrors_were_opened_ = true;
  for (Place& place : places_) {
    try {
      checkpoint::reach_mirror(back(place));
      if (place.directory == shown_) known_runs_.merge(runs_known_in(*place.files, shown_));
      bool is_new = false;
      checkpoint::with_patience(back(place), [&] {
        if (opening.check) check_run_in(place, opening);
        is_new = !place.files->exists(place.directory);
        place.mirror->claim();
      });
      place.is_reached = true;
      if (is_new) log::info("the mirror '" + place.directory + "' is a new folder");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIo) throw;
      const std::string problem =
          "the mirror '" + place.directory + "' cannot be reached: " + error.what();
      if (!opening.begins_anew && !holds_checkpoints(*files_, config_.args.output_dir)) {
        throw Error(ErrorKind::kIo,
                    problem + "; '" + config_.args.output_dir +
                        "' holds no checkpoint, and the mirror may hold hours of work, so nothing "
                        "is begun: make it reachable and run the same command again, or add "
                        "--restart to begin at step 0");
      }
      log::warning(problem + "; the run continues with what '" + config_.args.output_dir +
                   "' holds, and the mirror is tried again at every save");
    }
  }
}

std::optional<CheckpointEntry> RunStorage::newest_here() const {
  try {
    const auto files = interruptible_reads(files_, "verifying checkpoints");
    return checkpoint::find_newest_good(*files, config_.args.output_dir, kWarnOfStorage);
  } catch (const Error& error) {  // a mirror may have a complete one
    if (error.kind() != ErrorKind::kCheckpoint) throw;
    return std::nullopt;
  }
}

std::string RunStorage::bring_back_finished() {
  if (restore_state()) return "";
  std::string damage;
  for (const Place& place : places_) {
    if (!place.is_reached) continue;
    if (!checkpoint::bring_back_finished(back(place), newest_here(), &damage)) continue;
    log::info("the finished run is restored from '" + place.directory + "'");
    bring_back_checkpoints();  // to resume from if more steps are asked for
    return "";
  }
  return damage;
}

void RunStorage::bring_back_checkpoints() {
  for (const Place& place : places_) {
    if (!place.is_reached) continue;
    const std::optional<CheckpointEntry> newest = newest_here();
    try {
      const std::optional<int64_t> step = checkpoint::bring_back_newest(back(place), newest);
      if (!step) continue;
      log::info(
          "checkpoint-" + std::to_string(*step) + " is restored from the mirror '" +
          place.directory + "'" +
          (newest ? ", which is ahead of step " + std::to_string(newest->step) + " here" : ""));
    } catch (const Error& error) {
      if (!newest || error.kind() != ErrorKind::kIo) throw;
      log::warning("the mirror '" + place.directory + "' cannot be read: " + error.what() +
                   "; the run resumes from step " + std::to_string(newest->step));
      continue;
    }
    bring_back_logs(place);
  }
}

void RunStorage::bring_back_logs(const Place& place) const {
  const std::string logs = join_path(config_.args.output_dir, kLogsFolder);
  if (!files_->exists(logs)) (void)bring_back_tree(back(place), kLogsFolder, logs);
  for (const char* name : {kMetricsFile, kSessionsFile}) {
    const std::string here = join_path(config_.args.output_dir, name);
    const std::string there = join_path(place.directory, name);
    try {
      if (files_->exists(here) || !place.files->exists(there)) continue;
      files_->write_atomically(here, place.files->read_all(there));
    } catch (const Error& error) {  // the run does not need it
      log::debug(error.what());
    }
  }
}

bool RunStorage::fetch_tokens(const std::string& name, const std::string& path,
                              const ShowStep& show) const {
  for (const Place& place : places_) {
    if (!place.is_reached) continue;
    checkpoint::BringBackOptions options = back(place);
    options.show = [&](uint64_t copied, uint64_t total) {
      const auto megabytes = [](uint64_t bytes) { return static_cast<int64_t>(bytes / 1'000'000); };
      show({.phase = "fetch tokenised data",
            .unit = "MB",
            .done = megabytes(copied),
            .total = megabytes(total)});
    };
    if (!bring_back_tree(options, join_path(kTokensFolder, name), path)) continue;
    log::info("tokenised data come from the mirror '" + place.directory + "'");
    return true;
  }
  return false;
}

void RunStorage::keep_tokens(const std::string& path, const std::string& name) {
  const std::pair<std::string, std::string> kept = {path, join_path(kTokensFolder, name)};
  if (std::find(tokens_.begin(), tokens_.end(), kept) == tokens_.end()) tokens_.push_back(kept);
}

void RunStorage::copy_tokens() const {
  for (const Place& place : places_) {
    std::vector<std::string> used;
    for (const auto& [path, name] : tokens_) {
      place.mirror->copy_tree(path, name);
      used.push_back(file_name(name));
    }
    if (!used.empty()) {
      place.mirror->remove_unused_trees(kTokensFolder, used, TokenCacheOptions().kept_unused);
    }
  }
}

std::vector<SavingFolder> RunStorage::saving_folders(const std::string& run_id) const {
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
  add(*files_, config_.args.output_dir, false);
  for (const Place& place : places_) {
    if (place.is_reached) add(*place.files, place.directory, true);
  }
  return folders;
}

void RunStorage::in_folder_and_mirrors(
    const std::function<void(FileSystem& files, const std::string& folder)>& action,
    const std::string& failure) {
  action(*files_, config_.args.output_dir);
  for (const Place& place : places_) {
    if (!place.is_reached) continue;
    try {
      action(*place.files, place.directory);
    } catch (const Error& error) {
      log::warning(failure + ": " + error.what());
    }
  }
}

void RunStorage::set_aside(int64_t after_step) {
  in_folder_and_mirrors(
      [&](FileSystem& files, const std::string& folder) {
        for (const std::string& path : checkpoint::set_aside_all(files, folder, after_step)) {
          log::info("renamed: " + path);
        }
      },
      "the mirror's checkpoints are not renamed");
}

void RunStorage::set_aside_former_run() {
  in_folder_and_mirrors(
      [](FileSystem& files, const std::string& folder) {
        const std::string aside = finetune::set_aside_former_run(files, folder);
        if (aside.empty()) return;
        log::info("moved the model, results and logs of the former run to " + aside);
      },
      "the former run's model stays in the mirror until this run ends and replaces it");
}

void RunStorage::forget_finished() {
  checkpoint::remember_written(*files_, config_.args.output_dir);
  in_folder_and_mirrors(
      [](FileSystem& files, const std::string& folder) {
        checkpoint::forget_finished(files, folder);
      },
      "the mirror still says that the run is finished");
}

void RunStorage::committed(const std::string& path, const checkpoint::RotationPolicy& policy) {
  const bool is_first = !has_committed_.exchange(true);
  checkpoint::RotationPolicy of_mirror = policy;
  const std::optional<int64_t> limit = config_.args.mirror_total_limit;
  if (limit) of_mirror.save_total_limit = limit;
  for (const Place& place : places_) {
    place.mirror->copy_checkpoint(path, of_mirror);
    copy_logs(*place.mirror);
  }
  if (is_first) copy_tokens();
}

void RunStorage::check_ours() {
  if (!is_first_) return;
  if (lock_->is_lost()) lock_->check();
  for (const Place& place : places_) place.mirror->check();
}

void RunStorage::copy_logs(checkpoint::Mirror& mirror) const {
  mirror.copy_tree(join_path(config_.args.output_dir, kLogsFolder), kLogsFolder, false,
                   former_end_);
  for (const char* name : {kMetricsFile, kSessionsFile}) {
    const std::string path = join_path(config_.args.output_dir, name);
    if (files_->exists(path)) mirror.copy_file(path, {}, former_end_);
  }
}

void RunStorage::copy_all_checkpoints(const Place& place) const {
  for (const CheckpointEntry& entry :
       checkpoint::list_checkpoints(*files_, config_.args.output_dir, false)) {
    if (entry.whole && !entry.foreign) place.mirror->copy_older(entry.path);
  }
}

std::string RunStorage::held_of_another(const Place& place) const {
  try {
    const auto run_id = [](FileSystem& files, const std::string& folder) {
      const checkpoint::FinishedModel model =
          checkpoint::inspect_finished_model(files, folder, false);
      return model.manifest ? model.manifest->run_id : "";
    };
    const std::string there = run_id(*place.files, place.directory);
    const std::string here = run_id(*files_, config_.args.output_dir);
    if (!there.empty() && there != here) return "the finished model";
    const auto run = newest_run_in(*place.files, place.directory);
    const bool is_known = !run || place.directory == shown_ || run->state.run_id == here ||
                          known_runs_.contains(run->state.run_id);
    return is_known ? "" : file_name(run->folder);
  } catch (const Error& error) {
    log::debug("the mirror '" + place.directory + "' cannot be read: " + error.what());
    return "";
  }
}

bool RunStorage::finish(bool is_finished) {
  if (!is_finished && !has_committed_) return true;
  // The session's limit already leaves time for copies; a signal leaves less.
  const bool by_signal = interrupt::is_requested() && !interrupt::is_moment_reached();
  const double grace = config_.args.mirror_grace_seconds;
  const double patience = by_signal ? grace : is_finished ? kFinishedPatience : kStoppedPatience;
  // A signal that arrives during the wait limits it like an earlier one.
  std::optional<double> signalled_at;
  const auto give_up = [&] {
    if (by_signal || !interrupt::is_requested() || interrupt::is_moment_reached()) return false;
    if (!signalled_at) signalled_at = now_seconds();
    return now_seconds() > *signalled_at + grace;
  };
  bool is_everywhere = true;
  std::string refusal;
  for (const Place& place : places_) {
    checkpoint::Mirror& mirror = *place.mirror;
    const auto has_everything = [&] {
      if (mirror.wait(kQuickSeconds)) return true;
      log::info("waiting up to " + std::to_string(static_cast<int>(patience)) +
                " s until the mirror '" + place.directory + "' has everything");
      return mirror.wait(patience, give_up);
    };
    const std::string other =
        is_finished && mirror.wait(kQuickSeconds) ? held_of_another(place) : "";
    if (!other.empty()) {
      is_everywhere = false;
      refusal = format_text(
          "the mirror '{}' holds {} of another run, which is not overwritten; "
          "name another mirror_dir, or move that run's files away",
          place.directory, other);
      if (!former_end_) log::error(refusal);
      (void)mirror.finish(0);
      continue;
    }
    copy_logs(mirror);
    if (has_everything() && is_finished) {
      copy_all_checkpoints(place);
      mirror.copy_tree(join_path(config_.args.output_dir, kLogsFolder), kLogsFolder, true,
                       former_end_);
      copy_results(mirror);
      (void)has_everything();
    }
    if (mirror.finish(0)) {
      log::info("the mirror '" + place.directory + "' has everything");
    } else {
      is_everywhere = false;
      log::error(
          "'" + place.directory + "' lacks what '" + config_.args.output_dir +
          "' on this machine holds; make the mirror reachable and run the same command again "
          "before you delete this machine");
    }
  }
  if (former_end_ && !refusal.empty()) throw Error(ErrorKind::kConfig, refusal);
  return is_everywhere;
}

}  // namespace finetune
