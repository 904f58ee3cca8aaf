// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/restore.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/local_http.h"
#include "checkpoint/verified_copy.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/mount.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/checkpoint/manifest.h"

namespace finetune::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;
constexpr double kFirstPause = 1;
constexpr double kLongestPause = 15;

// Retries `action` after temporary failures until the timeout.
template <class Action>
auto retrying(const RestoreOptions& options, Action action) {
  const double end = options.clock->now() + options.timeout_seconds;
  const WhileWaiting stops(
      [&] { interrupt::throw_if_requested("waiting for '" + options.mirror_dir + "'"); });
  for (double pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    try {
      return action();
    } catch (const Error& error) {
      const bool is_full = error.system_error() == ENOSPC;  // the local disk
      if (is_full || !may_pass(error) || options.clock->now() + pause > end) throw;
      log::info(std::string("the mirror does not answer, trying again: ") + error.what());
    }
    interrupt::throw_if_requested("waiting for '" + options.mirror_dir + "'");
    options.clock->sleep(pause);
    interrupt::throw_if_requested("waiting for '" + options.mirror_dir + "'");
  }
}

CopyLocations locations(const RestoreOptions& options) {
  return {.from = *options.files,
          .to = *options.local,
          .may_continue = [] { interrupt::throw_if_requested("copying from the mirror"); },
          .clock = options.clock};
}

// Whether `path` is where hosted notebooks mount a Drive, but nothing is mounted: the folder is on
// the local disk.
bool is_missing_mount(const std::string& path) {
  const std::string resolved = resolved_path(path);
  for (const char* point : {"/content/drive", "/content/gdrive"}) {
    if (resolved.rfind(std::string(point) + "/", 0) != 0) continue;
    const std::optional<Mount> mount = mount_of(path);
    return !mount || mount->point.rfind(point, 0) != 0;
  }
  return false;
}

std::optional<int64_t> best_step(FileSystem& files, const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, kTrainerStateFile);
  if (!files.exists(path)) return std::nullopt;
  JsonLimits limits;
  limits.allow_nan = true;
  const Json state =
      parse_json(files.read_all(path, kMaxTextBytes), path, ErrorKind::kCheckpoint, limits);
  const auto best = state.is_object() ? state.find("best_model_checkpoint") : state.end();
  if (!state.is_object() || best == state.end() || !best->is_string()) return std::nullopt;
  return parse_checkpoint_name(file_name(best->get<std::string>()));
}

std::string read_source(FileSystem& files, const std::string& path) {
  try {
    return files.read_all(path, kMaxTextBytes);
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
}

std::vector<std::string> foreign_files(FileSystem& files, const std::string& folder) {
  std::vector<std::string> names;
  try {
    for (const std::string& name : files.list(folder)) {
      if (files.type(join_path(folder, name)) == FileType::kFile) names.push_back(name);
    }
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
  return names;
}

// Copies one checkpoint if it is valid; throws otherwise. What an attempt that failed or was killed
// has copied stays for the next one.
void fetch(const RestoreOptions& options, const CheckpointEntry& entry) {
  FileSystem& local = *options.local;
  const std::string run = is_identifier(entry.run_id) ? entry.run_id : "foreign";
  const std::string staging = join_path(options.output_dir, fetch_name(entry.step, run));
  const std::string target = join_path(options.output_dir, checkpoint_name(entry.step));
  try {
    if (entry.foreign || local.type(staging) != FileType::kDirectory) {
      local.remove_tree(staging);
      local.make_directory(staging);
    }
    if (entry.foreign) {
      for (const std::string& name : foreign_files(*options.files, entry.path)) {
        (void)copy_file(locations(options), join_path(entry.path, name), join_path(staging, name));
      }
    } else {
      const std::string path = join_path(entry.path, kManifestFile);
      const std::string text = read_source(*options.files, path);
      const Manifest manifest = parse_manifest(text, path);
      const auto missing = still_missing(local, staging, manifest.files);
      const auto copied = copy_files(locations(options), entry.path, staging, missing);
      for (const auto& [name, record] : copied) {
        if (record != missing.at(name)) {
          throw Error(ErrorKind::kCheckpoint, name + " is damaged");
        }
      }
      const std::unique_ptr<WritableFile> file = local.create(join_path(staging, kManifestFile));
      file->write(text);
      file->sync();
      file->close();
    }
    local.sync_directory(staging);
    if (local.exists(target)) {
      const bool is_whole = inspect_checkpoint(local, target, true).whole;
      quarantine(local, options.output_dir, entry.step,
                 is_whole ? QuarantineReason::kOld : QuarantineReason::kBad);
    }
    local.rename_new(staging, target);
    local.sync_directory(options.output_dir);
  } catch (const Error& error) {
    const bool may_continue = dynamic_cast<const SourceError*>(&error) != nullptr;
    if (may_continue && error.kind() == ErrorKind::kIo) throw;
    try {
      local.remove_tree(staging);
    } catch (const Error&) {  // a later save deletes it
    }
    throw;
  }
}

// Deletes what attempts at other checkpoints have copied.
void forget_attempts(FileSystem& local, const std::string& output_dir) {
  for (const std::string& name : local.list(output_dir)) {
    if (is_fetch_name(name)) local.remove_tree(join_path(output_dir, name));
  }
}

void quarantine(const RestoreOptions& options, const CheckpointEntry& entry,
                const std::string& problem) {
  std::string where = "it stays where it is";
  try {
    where = "it is kept as " + file_name(quarantine(*options.files, options.mirror_dir, entry.step,
                                                    QuarantineReason::kBad));
  } catch (const Error&) {
  }
  options.report("the mirror's " + checkpoint_name(entry.step) + " is not used: " + problem + "; " +
                 where);
}

CheckpointEntry retry(const RestoreOptions& options, const std::string& path) {
  CheckpointEntry entry;
  try {
    retrying(options, [&] {
      entry = inspect_checkpoint(*options.files, path, false);
      if (entry.unreadable) throw SourceError(ErrorKind::kIo, entry.problem);
    });
  } catch (const SourceError&) {  // the entry contains the problem
  }
  return entry;
}

struct Outcome {
  bool taken = false;
  bool damaged = false;
  bool unreadable = false;
};

Outcome try_to_fetch(const RestoreOptions& options, const CheckpointEntry& entry) {
  try {
    retrying(options, [&] { fetch(options, entry); });
    return {.taken = true};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo) {
      quarantine(options, entry, error.what());
      return {.damaged = true};
    }
    // A full local disk is not the mirror's fault, and an older checkpoint would not fit either.
    if (dynamic_cast<const SourceError*>(&error) == nullptr) throw;
    options.report("the mirror's " + checkpoint_name(entry.step) +
                   " is skipped and left as it is: " + error.what());
    return {.unreadable = true};
  }
}

void fetch_best(const RestoreOptions& options, const CheckpointEntry& newest) {
  try {
    const std::string local = join_path(options.output_dir, checkpoint_name(newest.step));
    const std::optional<int64_t> step = best_step(*options.local, local);
    if (!step || *step == newest.step) return;
    const std::string name = checkpoint_name(*step);
    if (options.local->exists(join_path(options.output_dir, name))) return;
    const CheckpointEntry best =
        inspect_checkpoint(*options.files, join_path(options.mirror_dir, name), false);
    if (best.whole && best.run_id == newest.run_id) (void)try_to_fetch(options, best);
  } catch (const Error& error) {
    options.report(std::string("the best checkpoint could not be restored: ") + error.what());
  }
}

std::optional<Manifest> parsed_manifest(const std::string& text, const std::string& path,
                                        FileNames names) {
  try {
    return parse_manifest(text, path, names);
  } catch (const Error& error) {
    log::debug(std::string("not used: ") + error.what());
    return std::nullopt;
  }
}

std::optional<Manifest> manifest_in(FileSystem& files, const std::string& path, FileNames names) {
  const std::optional<std::string> text = read_if_there(files, path, kMaxTextBytes);
  return text ? parsed_manifest(*text, path, names) : std::nullopt;
}

// A finished model in a mirror, verified.
struct FinishedCopy {
  std::map<std::string, FileRecord> files;
  std::optional<Manifest> manifest;  // nullopt: an older version wrote the mirror
};

// manifest.json lists the files of the model, the index lists these and the user's. After an
// interrupted copy a file may match only one of the two. Throws Error(kCheckpoint) if a file of the
// model matches neither.
FinishedCopy verify_finished_copy(const RestoreOptions& options, const Json& state) {
  FileSystem& files = *options.files;
  FinishedCopy copy;
  copy.manifest =
      manifest_in(files, join_path(options.mirror_dir, kManifestFile), FileNames::kPlain);
  std::optional<Manifest> index =
      manifest_in(files, join_path(options.mirror_dir, kTreeIndexFile), FileNames::kPaths);
  const std::string run_id = state.value("run_id", std::string());
  const auto step = state.value("step", int64_t{0});
  if (copy.manifest && (copy.manifest->run_id != run_id || copy.manifest->step != step)) {
    copy.manifest.reset();
  }
  if (!copy.manifest && index && state.value("has_manifest", false)) {
    copy.manifest = *index;
    copy.manifest->run_id = run_id;
    copy.manifest->step = step;
  }
  if (!index) index.emplace();
  std::set<std::string> names;
  for (const auto& item : index->files) names.insert(item.first);
  if (copy.manifest) {
    for (const auto& item : copy.manifest->files) names.insert(item.first);
  }
  for (const std::string& name : names) {
    const std::string path = join_path(options.mirror_dir, name);
    const bool is_card = name == kModelCardFile;
    const bool is_recorded = !is_card && copy.manifest && copy.manifest->files.count(name) > 0;
    std::string problem = "'" + path + "' has no checksum";
    for (const Manifest* manifest : {copy.manifest ? &*copy.manifest : nullptr, &*index}) {
      if (manifest == nullptr || manifest->files.count(name) == 0) continue;
      try {
        verify_file(*files.open(path), manifest->files.at(name), path);
        copy.files[name] = manifest->files.at(name);
        break;
      } catch (const Error& error) {
        problem = error.what();
      }
    }
    if (copy.files.count(name) > 0) {
      if (is_recorded) copy.manifest->files[name] = copy.files.at(name);
    } else if (is_recorded || (!copy.manifest && !is_card)) {
      throw Error(ErrorKind::kCheckpoint, problem);
    } else {
      options.report("not copied back: " + problem);
    }
  }
  if (copy.files.count(kFinetuneStateFile) == 0) {
    throw Error(ErrorKind::kCheckpoint,
                "'" + join_path(options.mirror_dir, kFinetuneStateFile) + "' has no checksum");
  }
  return copy;
}

// Names the location in the mirror where a line names its local copy.
std::string with_mirror(std::string line, const std::string& folder, const std::string& mirror) {
  for (size_t at = line.find(folder); at != std::string::npos; at = line.find(folder, at)) {
    line.replace(at, folder.size(), mirror);
    at += mirror.size();
  }
  return line;
}

// Copies a bucket's finished model to a local folder and returns how it is brought back from there,
// so that what is verified first need not be sent twice.
RestoreOptions fetch_finished(const RestoreOptions& options, const Json& state) {
  FileSystem& files = *options.files;
  FileSystem& local = *options.local;
  const std::string run_id = state.value("run_id", std::string());
  if (!is_identifier(run_id)) return options;
  const std::string folder =
      join_path(options.output_dir, fetch_name(state.value("step", int64_t{0}), run_id));
  local.make_directories(folder);
  std::map<std::string, std::string> texts;
  retrying(options, [&] {
    const std::map<std::string, FileSystem::Entry> there = files.entries(options.mirror_dir);
    std::map<std::string, FileRecord> wanted;
    for (const auto& [name, kind] : {std::pair{kTreeIndexFile, FileNames::kPaths},
                                     std::pair{kManifestFile, FileNames::kPlain}}) {
      if (!there.contains(name)) continue;
      const std::string path = join_path(options.mirror_dir, name);
      const std::string text = files.read_all(path, kMaxTextBytes);
      const auto listed = parsed_manifest(text, path, kind);
      if (!listed) continue;
      texts[name] = text;
      for (const auto& item : listed->files) {
        const bool is_below = item.first.find('/') != std::string::npos;
        if (is_below || there.contains(item.first)) wanted[item.first] = item.second;
      }
    }
    const auto missing = still_missing(local, folder, wanted);
    (void)copy_files(locations(options), options.mirror_dir, folder, missing);
  });
  for (const auto& [name, text] : texts) local.write_atomically(join_path(folder, name), text);
  RestoreOptions from_folder = options;
  from_folder.files = options.local;
  from_folder.mirror_dir = folder;
  from_folder.report = [report = options.report, folder, mirror = options.mirror_dir](
                           const std::string& line) { report(with_mirror(line, folder, mirror)); };
  return from_folder;
}

}  // namespace

void reach_mirror(const RestoreOptions& options) {
  if (is_missing_mount(options.mirror_dir)) {
    throw Error(ErrorKind::kIo, "'" + options.mirror_dir +
                                    "' is on a Drive that is not mounted; mount it and run the "
                                    "command again");
  }
  retrying(options, [&] {
    if (options.files->type(options.mirror_dir) == FileType::kMissing) return;
    (void)options.files->list(options.mirror_dir);
  });
}

void with_retries(const RestoreOptions& options, const std::function<void()>& action) {
  retrying(options, [&] { action(); });
}

std::optional<int64_t> restore_newest(const RestoreOptions& options,
                                      const std::optional<CheckpointEntry>& newest) {
  FileSystem& files = *options.files;
  if (!files.exists(options.mirror_dir)) return std::nullopt;
  std::vector<CheckpointEntry> entries =
      retrying(options, [&] { return list_checkpoints(files, options.mirror_dir, false); });
  std::reverse(entries.begin(), entries.end());
  bool damaged = false;
  bool unreadable = false;
  for (CheckpointEntry& entry : entries) {
    if (newest && entry.step <= newest->step) break;
    if (entry.unreadable) {
      entry = retry(options, entry.path);
    }
    if (entry.unreadable) {
      unreadable = true;
      options.report("the mirror's " + checkpoint_name(entry.step) +
                     " is skipped and left as it is: " + entry.problem);
      continue;
    }
    if (!entry.whole) {
      if (is_unfinished_copy(files, entry.path)) {
        log::info("the mirror's " + checkpoint_name(entry.step) + " was not copied to its end");
        continue;
      }
      damaged = true;
      quarantine(options, entry, entry.problem);
      continue;
    }
    const bool is_same_run = newest && (newest->foreign || entry.run_id == newest->run_id);
    if (newest && (entry.foreign || !is_same_run)) continue;
    const Outcome outcome = try_to_fetch(options, entry);
    damaged = damaged || outcome.damaged;
    unreadable = unreadable || outcome.unreadable;
    if (!outcome.taken) continue;
    forget_attempts(*options.local, options.output_dir);
    fetch_best(options, entry);
    return entry.step;
  }
  if (newest) return std::nullopt;
  if (unreadable) {
    throw Error(ErrorKind::kIo, "'" + options.mirror_dir +
                                    "' holds checkpoints that cannot be read now; run the command "
                                    "again later, or add --restart to begin at step 0");
  }
  for (const std::string& name : files.list(options.mirror_dir)) {
    const std::optional<QuarantineName> quarantined = parse_quarantine_name(name);
    damaged = damaged || (quarantined && quarantined->reason == QuarantineReason::kBad);
  }
  if (!damaged) return std::nullopt;
  throw Error(ErrorKind::kCheckpoint,
              "'" + options.mirror_dir +
                  "' holds checkpoints, but none of them is valid; restore a valid one, or add "
                  "--restart to begin at step 0 (the damaged ones are kept under other names)");
}

bool restore_finished(const RestoreOptions& from_mirror,
                      const std::optional<CheckpointEntry>& newest, std::string* damage) {
  const std::string state_path = join_path(from_mirror.mirror_dir, kFinetuneStateFile);
  std::string problem;
  std::string folder;
  try {
    FileSystem& there = *from_mirror.files;
    if (!there.exists(state_path)) return false;
    const Json state = parse_json(there.read_all(state_path, kMaxTextBytes), state_path);
    if (!state.is_object() || !state.value("finished", false)) return false;
    if (newest && (state.value("run_id", std::string()) != newest->run_id ||
                   state.value("step", int64_t{0}) < newest->step)) {
      return false;
    }
    const RestoreOptions options =
        there.object_store() == nullptr ? from_mirror : fetch_finished(from_mirror, state);
    folder = options.mirror_dir;
    const FinishedCopy copy = verify_finished_copy(options, state);
    const auto bring = [&](const std::string& name, const FileRecord& record) {
      const std::string target = join_path(options.output_dir, name);
      make_folder_of(*options.local, options.output_dir, name);
      if (options.local->type(target) == FileType::kDirectory) {
        (void)quarantine_file(*options.local, target);
      }
      retrying(options, [&] {
        (void)replace_file(locations(options), join_path(options.mirror_dir, name), target,
                           &record);
      });
    };
    for (const auto& [name, record] : copy.files) {
      if (name != kFinetuneStateFile) bring(name, record);
    }
    if (copy.manifest) write_manifest(*options.local, options.output_dir, *copy.manifest);
    bring(kFinetuneStateFile, copy.files.at(kFinetuneStateFile));
    if (options.mirror_dir != from_mirror.mirror_dir)
      options.local->remove_tree(options.mirror_dir);
    options.local->sync_directory(options.output_dir);
    return true;
  } catch (const Error& error) {
    problem = error.what();
    if (!folder.empty()) problem = with_mirror(problem, folder, from_mirror.mirror_dir);
  } catch (const nlohmann::json::exception&) {
    problem = "'" + state_path + "' is damaged";
  }
  from_mirror.report("the mirror's finished model cannot be copied back: " + problem);
  if (damage != nullptr) *damage = problem;
  return false;
}

bool restore_step(const RestoreOptions& options, int64_t step, const std::string& run_id) {
  try {
    const CheckpointEntry entry = inspect_checkpoint(
        *options.files, join_path(options.mirror_dir, checkpoint_name(step)), false);
    if (!entry.whole || entry.foreign || entry.run_id != run_id) return false;
    return try_to_fetch(options, entry).taken;
  } catch (const Error& error) {
    options.report("the mirror's " + checkpoint_name(step) +
                   " cannot be copied back: " + error.what());
    return false;
  }
}

std::map<std::string, FileRecord> indexed_files(const RestoreOptions& options) {
  try {
    const auto index = manifest_in(*options.files, join_path(options.mirror_dir, kTreeIndexFile),
                                   FileNames::kPaths);
    if (index) return index->files;
  } catch (const Error& error) {
    options.report("the mirror's index cannot be read: " + std::string(error.what()));
  }
  return {};
}

void forget_finished(FileSystem& files, const std::string& folder) {
  for (const char* name : {kFinetuneStateFile, kManifestFile}) {
    const std::string path = join_path(folder, name);
    if (files.exists(path)) files.remove_tree(path);
  }
}

bool restore_tree(const RestoreOptions& options, const std::string& name,
                  const std::string& local_folder) {
  FileSystem& files = *options.files;
  FileSystem& local = *options.local;
  const std::string source = join_path(options.mirror_dir, name);
  const std::string staging = local_folder + ".tmp-" + random_identifier();
  try {
    const std::string index_path = join_path(source, kTreeIndexFile);
    if (!files.exists(index_path)) return false;
    const Manifest index =
        parse_manifest(files.read_all(index_path, kMaxTextBytes), index_path, FileNames::kPaths);
    local.make_directories(staging);
    uint64_t total = 0;
    uint64_t copied_bytes = 0;
    for (const auto& [path, record] : index.files) {
      total += record.bytes;
      local.make_directories(parent_path(join_path(staging, path)));
    }
    std::map<std::string, FileRecord> downloaded;
    if (files.object_store() != nullptr) {
      if (options.show) options.show(0, total);
      downloaded = retrying(
          options, [&] { return copy_files(locations(options), source, staging, index.files); });
    }
    for (const auto& [path, record] : index.files) {
      if (options.show) options.show(copied_bytes, total);
      const auto found = downloaded.find(path);
      const FileRecord copied =
          found != downloaded.end() ? found->second : retrying(options, [&, &expected = path] {
            return copy_file(locations(options), join_path(source, expected),
                             join_path(staging, expected));
          });
      if (copied != record) {
        throw Error(ErrorKind::kCheckpoint, "'" + join_path(source, path) + "' is damaged");
      }
      copied_bytes += record.bytes;
    }
    if (options.show) options.show(total, total);
    local.rename_new(staging, local_folder);
    local.sync_directory(parent_path(local_folder));
    return true;
  } catch (const Error& error) {
    options.report("'" + source + "' cannot be restored: " + error.what());
    try {
      local.remove_tree(staging);
    } catch (const Error&) {  // report the first failure
    }
    return false;
  }
}

}  // namespace finetune::checkpoint
