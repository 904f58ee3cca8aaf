// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/reader.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/foreign.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/manifest.h"

namespace finetune::checkpoint {

void reject_checkpoint(const std::string& reason) { throw Error(ErrorKind::kCheckpoint, reason); }

namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
constexpr char kNothing[] = "nothing is in it";

using Entries = std::map<std::string, FileSystem::Entry>;

FileType type_in(const Entries& entries, const std::string& name) {
  const auto entry = entries.find(name);
  return entry == entries.end() ? FileType::kMissing : entry->second.type;
}

// Fills the entry from the manifest; throws if anything differs from it.
void inspect_own(FileSystem& files, CheckpointEntry& entry, const Entries& there, bool verify) {
  const std::string manifest_path = join_path(entry.path, kManifestFile);
  if (type_in(there, kManifestFile) != FileType::kFile) {
    reject_checkpoint("manifest.json is not a file");
  }
  const std::string text = files.read_all(manifest_path, kMaxManifestBytes);
  const Manifest manifest = parse_manifest(text, manifest_path);
  entry.run_id = manifest.run_id;
  entry.created_unix = manifest.created_unix;
  entry.bytes = text.size();
  for (const auto& item : manifest.files) entry.bytes += item.second.bytes;
  if (manifest.step != entry.step) {
    reject_checkpoint(format_text("its manifest is that of step {}", manifest.step));
  }
  for (const auto& [name, record] : manifest.files) {
    const FileType type = type_in(there, name);
    if (type == FileType::kMissing) reject_checkpoint(name + " is missing");
    if (type != FileType::kFile) reject_checkpoint(name + " is not a file");
    std::unique_ptr<ReadableFile> file;
    std::optional<uint64_t> bytes = there.at(name).bytes;
    if (verify || !bytes) {
      file = files.open(join_path(entry.path, name));
      bytes = file->size();
    }
    if (*bytes != record.bytes) {
      reject_checkpoint(
          format_text("{} has {} bytes where {} were written", name, *bytes, record.bytes));
    }
    if (verify) verify_file(*file, record, name);
  }
  for (const auto& item : there) {
    if (item.first != kManifestFile && manifest.files.count(item.first) == 0) {
      entry.notes.push_back(item.first + " is not part of the checkpoint and is ignored");
    }
  }
}

// The names in a folder; none if it is missing.
std::vector<std::string> names_in(FileSystem& files, const std::string& folder) {
  if (files.object_store() == nullptr && !files.exists(folder)) return {};
  return files.list(folder);
}

// Returns the steps of all checkpoint-<N>, ascending.
std::vector<int64_t> list_steps(FileSystem& files, const std::string& output_dir) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(files, output_dir)) {
    if (const std::optional<int64_t> step = parse_checkpoint_name(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<QuarantineName> list_quarantined(FileSystem& files, const std::string& output_dir) {
  std::vector<QuarantineName> names;
  for (const std::string& name : names_in(files, output_dir)) {
    if (const std::optional<QuarantineName> quarantined = parse_quarantine_name(name))
      names.push_back(*quarantined);
  }
  return names;
}

// In an object store the manifest is hidden meanwhile, so that what an interruption leaves counts
// as an unfinished copy under both names.
void rename_checkpoint(FileSystem& files, const std::string& from, const std::string& to) {
  constexpr char kHidden[] = ".manifest.json";
  const std::string manifest = join_path(from, kManifestFile);
  const bool is_hidden = files.object_store() != nullptr && files.exists(manifest);
  if (is_hidden) files.rename(manifest, join_path(from, kHidden));
  files.rename_new(from, to);
  if (is_hidden) files.rename(join_path(to, kHidden), join_path(to, kManifestFile));
}

std::string rename_to_quarantine(FileSystem& files, const std::string& output_dir,
                                 const std::string& from, int64_t step, QuarantineReason reason) {
  QuarantineName name{.step = step, .reason = reason, .number = 1};
  for (const QuarantineName& other : list_quarantined(files, output_dir)) {
    if (other.step == step && other.reason == reason) {
      name.number = std::max(name.number, other.number + 1);
    }
  }
  const std::string path = join_path(output_dir, quarantine_name(name));
  rename_checkpoint(files, join_path(output_dir, from), path);
  files.sync_directory(output_dir);
  return path;
}

// Renames a rejected checkpoint and reports it.
void quarantine(FileSystem& files, const std::string& output_dir, const CheckpointEntry& entry,
                const Report& report) {
  const std::string what = checkpoint_name(entry.step) + " is not used: " + entry.problem;
  if (entry.unreadable) {
    report(what + "; it stays where it is");
    return;
  }
  try {
    const std::string path = quarantine(files, output_dir, entry.step, QuarantineReason::kBad);
    report(what + "; it is kept as " + file_name(path));
  } catch (const Error& error) {
    report(what + "; it stays where it is (" + error.what() + ")");
  }
}

}  // namespace

bool is_unfinished_copy(FileSystem& files, const std::string& path) {
  return !files.exists(join_path(path, kManifestFile)) &&
         files.exists(join_path(path, kFinetuneStateFile));
}

CheckpointEntry inspect_checkpoint(FileSystem& files, const std::string& path, bool verify) {
  CheckpointEntry entry;
  entry.path = path;
  const std::optional<int64_t> step = parse_checkpoint_name(file_name(path));
  entry.step = step.value_or(0);
  try {
    if (!step) reject_checkpoint("its name is not checkpoint-<step>");
    const bool is_store = files.object_store() != nullptr;
    if (!is_store && files.type(path) != FileType::kDirectory) {
      reject_checkpoint("it is not a folder");
    }
    const Entries there = files_below(files, path);
    if (is_store && there.empty()) reject_checkpoint(kNothing);
    if (there.contains(kManifestFile)) {
      inspect_own(files, entry, there, verify);
    } else if (there.contains(kFinetuneStateFile)) {
      reject_checkpoint("manifest.json is missing");
    } else {
      inspect_foreign(files, entry, verify);
    }
    entry.whole = true;
  } catch (const NewerFormat& error) {
    entry.problem = error.what();
    entry.is_newer = true;
  } catch (const Error& error) {
    entry.problem = error.what();
    entry.unreadable = error.kind() == ErrorKind::kIo;
  }
  return entry;
}

std::vector<CheckpointEntry> list_checkpoints(FileSystem& files, const std::string& output_dir,
                                              bool verify) {
  std::vector<CheckpointEntry> entries;
  for (const int64_t step : list_steps(files, output_dir)) {
    entries.push_back(
        inspect_checkpoint(files, join_path(output_dir, checkpoint_name(step)), verify));
    // Some stores keep the empty folder of what was deleted, or list it for a while.
    if (entries.back().problem == kNothing) entries.pop_back();
  }
  return entries;
}

std::optional<CheckpointEntry> find_newest_good(FileSystem& files, const std::string& output_dir,
                                                const Report& report) {
  std::vector<int64_t> steps = list_steps(files, output_dir);
  std::reverse(steps.begin(), steps.end());
  std::string unreadable;
  for (const int64_t step : steps) {
    const std::string path = join_path(output_dir, checkpoint_name(step));
    CheckpointEntry entry = inspect_checkpoint(files, path, true);
    if (entry.is_newer) throw NewerFormat(entry.problem);
    if (entry.unreadable) unreadable = checkpoint_name(step) + ": " + entry.problem;
    if (entry.whole) {
      for (const std::string& note : entry.notes) report(checkpoint_name(step) + ": " + note);
      return entry;
    }
    quarantine(files, output_dir, entry, report);
  }
  if (!unreadable.empty()) {
    throw Error(ErrorKind::kIo, "'" + output_dir + "' holds checkpoints that could not be read (" +
                                    unreadable + "); run the same command again when they can be");
  }
  const std::vector<QuarantineName> quarantined = list_quarantined(files, output_dir);
  const bool any_bad =
      std::any_of(quarantined.begin(), quarantined.end(),
                  [](const QuarantineName& name) { return name.reason == QuarantineReason::kBad; });
  if (steps.empty() && !any_bad) return std::nullopt;
  throw Error(ErrorKind::kCheckpoint,
              "'" + output_dir +
                  "' holds checkpoints, but none of them is valid; restore a valid one, or add "
                  "--restart to begin at step 0 (the damaged ones are kept under other names)");
}

std::string quarantine(FileSystem& files, const std::string& output_dir, int64_t step,
                       QuarantineReason reason) {
  return rename_to_quarantine(files, output_dir, checkpoint_name(step), step, reason);
}

std::vector<std::string> quarantine_all(FileSystem& files, const std::string& output_dir,
                                        int64_t after_step) {
  std::vector<std::string> paths;
  for (const int64_t step : list_steps(files, output_dir)) {
    if (step > after_step) {
      paths.push_back(quarantine(files, output_dir, step, QuarantineReason::kOld));
    }
  }
  for (const QuarantineName& name : list_quarantined(files, output_dir)) {
    if (name.reason == QuarantineReason::kBad && name.step > after_step) {
      paths.push_back(rename_to_quarantine(files, output_dir, quarantine_name(name), name.step,
                                           QuarantineReason::kOld));
    }
  }
  return paths;
}

}  // namespace finetune::checkpoint
