// SPDX-License-Identifier: MIT
#include "checkpoint/mirror_folder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "finetune/base/clock.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/base/thread_pool.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

constexpr uint64_t kMaxCopyManifestBytes = uint64_t{64} << 20;
constexpr auto kRecordPoll = std::chrono::milliseconds(100);
constexpr char kTreeRun[] = "tree";  // run id in the manifests of trees
// A file next to a tree's index, with the time of the last use in seconds since the epoch. File
// times cannot serve, because a mirror's file system may not support them or may change them.
constexpr char kLastUse[] = "last_use";

std::string read_copy_source(FileSystem& files, const std::string& path) {
  try {
    return files.read_all(path, kMaxCopyManifestBytes);
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
}

void write_text(const CopyLocations& locations, const std::string& path, const std::string& text) {
  FileSystem& files = locations.to;
  if (files.object_store() == nullptr) {
    if (files.type(path) == FileType::kDirectory) (void)quarantine_file(files, path);
    if (files.exists(path)) files.remove_file(path);
  }
  const std::unique_ptr<WritableFile> file = files.create(path);
  file->write(text);
  file->sync();
  file->close();
  look_until_seen(locations, [&] {
    files.drop_cached(path);
    if (files.read_all(path, kMaxCopyManifestBytes) == text) return;
    throw Error(ErrorKind::kIo, "'" + path + "' does not read back as it was written");
  });
}

void list_tree(FileSystem& files, const std::string& folder, const std::string& below,
               std::vector<std::string>& paths) {
  for (const std::string& name : files.list(folder)) {
    const std::string path = join_path(folder, name);
    const std::string relative = below.empty() ? name : below + "/" + name;
    const FileType type = files.type(path);
    if (type == FileType::kDirectory) {
      list_tree(files, path, relative, paths);
    } else if (type == FileType::kFile && is_tree_path(relative)) {
      paths.push_back(relative);
    }
  }
}

// Returns the state first: it distinguishes an interrupted copy from another program's checkpoint.
std::vector<std::string> in_order(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const auto& item : manifest.files) names.push_back(item.first);
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name == kFinetuneStateFile; });
  return names;
}

// Computes the records of local files on its own thread, in the given order.
class RecordsBeside {
 public:
  RecordsBeside(CopyLocations locations, const std::string& folder,
                const std::vector<std::string>& names)
      : locations_(std::move(locations)), thread_(1) {
    locations_.may_continue = [this] {
      if (is_abandoned_) throw Error(ErrorKind::kIo, "nobody waits for it");
    };
    for (const std::string& name : names) {
      records_.emplace_back(name, thread_.submit([this, path = join_path(folder, name)] {
        return record_of(locations_, path);
      }));
    }
  }
  ~RecordsBeside() { is_abandoned_ = true; }
  RecordsBeside(const RecordsBeside&) = delete;
  RecordsBeside& operator=(const RecordsBeside&) = delete;

  [[nodiscard]] std::map<std::string, FileRecord> wait(const std::function<void()>& may_continue) {
    std::map<std::string, FileRecord> records;
    for (auto& [name, record] : records_) {
      while (record.wait_for(kRecordPoll) != std::future_status::ready) may_continue();
      records[name] = record.get();
    }
    return records;
  }

 private:
  std::atomic<bool> is_abandoned_ = false;
  CopyLocations locations_;
  std::vector<std::pair<std::string, std::future<FileRecord>>> records_;
  ThreadPool thread_;  // destroyed first
};

}  // namespace

CopyLocations MirrorFolder::locations() const {
  if (!reads_back_) {
    ObjectStore* const store = options_.files->object_store();
    const bool is_checked = store != nullptr && store->checks_uploads();
    reads_back_ =
        options_.check == CopyCheck::kRead || (options_.check == CopyCheck::kHash && !is_checked);
  }
  return {.from = *options_.local,
          .to = *options_.files,
          .may_continue = options_.may_continue,
          .clock = options_.clock,
          .reads_back = *reads_back_};
}

void MirrorFolder::make() { options_.files->make_directories(options_.directory); }

// Whether a renamed folder keeps its content on this file system. If not, the manifest defines a
// checkpoint: it is written last and verified by the reader.
bool MirrorFolder::trusts_renames() {
  if (options_.files->object_store() != nullptr) return false;
  if (trusts_renames_) return *trusts_renames_;
  FileSystem& files = *options_.files;
  const auto probe = [&](const char* what) {
    return join_path(options_.directory, staging_name(0, what, random_identifier()));
  };
  const std::string from = probe("probe");
  const std::string to = probe("renamed");
  files.make_directory(from);
  write_text(locations(), join_path(from, "probe"), "probe");
  bool works = false;
  try {
    files.rename_new(from, to);
    works = !files.exists(from) && files.read_all(join_path(to, "probe"), 64) == "probe";
  } catch (const Error& error) {
    log::debug(std::string("renaming folders there does not work: ") + error.what());
  }
  files.remove_tree(from);
  files.remove_tree(to);
  trusts_renames_ = works;
  return works;
}

// Returns whether an identical copy of the checkpoint exists; removes or renames anything else with
// its name.
bool MirrorFolder::is_there(const CheckpointCopy& copy, const std::string& target) {
  FileSystem& files = *options_.files;
  if (!files.exists(target) || target == copy.staging) return false;
  const std::string manifest_path = join_path(target, kManifestFile);
  if (is_unfinished_copy(files, target)) {
    files.remove_tree(target);
    return false;
  }
  const CheckpointEntry entry = inspect_checkpoint(files, target, true);
  if (entry.whole &&
      files.read_all(manifest_path, kMaxCopyManifestBytes) == manifest_text(*copy.manifest)) {
    return true;
  }
  if (entry.unreadable) throw Error(ErrorKind::kIo, target + ": " + entry.problem);
  options_.check_fence();
  const std::string kept =
      quarantine(files, options_.directory, copy.manifest->step,
                 entry.whole ? QuarantineReason::kOld : QuarantineReason::kBad);
  if (!entry.whole) {
    options_.report("'" + target + "' is damaged (" + entry.problem + "): it is renamed to " +
                    file_name(kept) + " and copied again");
  }
  return false;
}

void MirrorFolder::stage(CheckpointCopy& copy, const std::string& target) {
  FileSystem& files = *options_.files;
  if (copy.staging.empty() || !files.exists(copy.staging)) {
    copy.verified.clear();
    copy.sent.clear();
    copy.staging =
        trusts_renames()
            ? join_path(options_.directory, staging_name(copy.manifest->step, copy.manifest->run_id,
                                                         random_identifier()))
            : target;
    files.make_directory(copy.staging);
  }
  std::vector<std::string> names = in_order(*copy.manifest);
  std::erase_if(names, [&](const std::string& name) { return copy.verified.contains(name); });
  ObjectStore* const store = files.object_store();
  std::map<std::string, FileRecord> sent;
  if (store != nullptr) sent = upload(*store, copy, names);
  for (const std::string& name : names) {
    const std::string source = join_path(copy.source, name);
    const std::string path = join_path(copy.staging, name);
    const FileRecord& expected = copy.manifest->files.at(name);
    make_folder_of(files, copy.staging, name);
    const FileRecord record =
        store != nullptr ? sent.at(name) : checkpoint::copy_file(locations(), source, path);
    if (record != expected) {
      copy.sent.erase(name);
      throw SourceError(ErrorKind::kCheckpoint,
                        "'" + source + "' is not as its manifest says, so it is not mirrored");
    }
    options_.may_continue();
    if (compares_sizes()) continue;
    copy.sent.erase(name);  // what is not as it should be is sent again
    read_back(locations(), path, expected);
    copy.verified.insert(name);
  }
}

// The store has compared the bytes: the sizes of all files are one request.
bool MirrorFolder::compares_sizes() const {
  return options_.files->object_store() != nullptr && !locations().reads_back;
}

// Completes the copy. While the manifest is sent, the sizes are asked for: readers compare them,
// too, so a manifest completes nothing as long as a file has another size.
void MirrorFolder::write_manifest(CheckpointCopy& copy, const std::string& text) {
  FileSystem& files = *options_.files;
  const std::string path = join_path(copy.staging, kManifestFile);
  if (!compares_sizes()) return write_text(locations(), path, text);
  ThreadPool beside(1);
  std::future<std::map<std::string, FileSystem::Entry>> list =
      beside.submit([&] { return files_below(files, copy.staging); });
  write_text(locations(), path, text);
  try {
    const std::map<std::string, FileSystem::Entry> stored = list.get();
    for (const auto& [name, expected] : copy.manifest->files) {
      copy.sent.erase(name);
      const auto entry = stored.find(name);
      // What a list lacks is asked for by itself: lists may be late.
      if (entry == stored.end() || entry->second.bytes != expected.bytes) {
        read_back(locations(), join_path(copy.staging, name), expected);
      }
      copy.verified.insert(name);
    }
  } catch (const Error&) {
    files.remove_file(path);
    throw;
  }
}

// The state first: it distinguishes an unfinished copy from other folders. Returns the records of
// all the files, as the disk has them.
std::map<std::string, FileRecord> MirrorFolder::upload(ObjectStore& store, CheckpointCopy& copy,
                                                       const std::vector<std::string>& names) {
  RecordsBeside records(locations(), copy.source, names);
  std::vector<ObjectStore::Transfer> first;
  std::vector<ObjectStore::Transfer> others;
  for (const std::string& name : names) {
    if (copy.sent.contains(name)) continue;
    (name == kFinetuneStateFile ? first : others)
        .push_back({.from = join_path(copy.source, name),
                    .to = join_path(copy.staging, name),
                    .bytes = copy.manifest->files.at(name).bytes});
  }
  const auto note = [&](const ObjectStore::Transfer& file) {
    copy.sent.insert(file.to.substr(copy.staging.size() + 1));
  };
  try {
    store.upload(first, options_.may_continue, note);
    store.upload(others, options_.may_continue, note);
  } catch (const Error&) {
    for (const std::string& name : names) {  // a checkpoint that was deleted meanwhile
      const std::string source = join_path(copy.source, name);
      if (!options_.local->exists(source)) {
        throw SourceError(ErrorKind::kIo, "'" + source + "' is not there", ENOENT);
      }
    }
    throw;
  }
  return records.wait(options_.may_continue);
}

void MirrorFolder::commit(CheckpointCopy& copy) {
  FileSystem& files = *options_.files;
  const std::string text =
      copy.manifest ? manifest_text(*copy.manifest)
                    : read_copy_source(*options_.local, join_path(copy.source, kManifestFile));
  if (!copy.manifest) copy.manifest = parse_manifest(text, copy.source);
  const std::string target = join_path(options_.directory, checkpoint_name(copy.manifest->step));
  if (verified_.count(target) > 0 && files.exists(target)) return;
  if (is_there(copy, target)) {
    verified_.insert(target);
    return;
  }
  stage(copy, target);
  options_.check_fence();
  write_manifest(copy, text);
  files.sync_directory(copy.staging);
  if (copy.staging != target) {
    options_.check_fence();
    files.rename_new(copy.staging, target);
  }
  files.sync_directory(options_.directory);
  copy.staging.clear();
  if (files.object_store() == nullptr) {  // it may have been renamed, or is not visible yet
    look_until_seen(locations(), [&] { (void)files.open(join_path(target, kManifestFile)); });
    const CheckpointEntry entry = inspect_checkpoint(files, target, false);
    if (!entry.whole) throw Error(ErrorKind::kIo, "'" + target + "': " + entry.problem);
  }
  verified_.insert(target);
}

void MirrorFolder::remove_unfinished() {
  if (unfinished_are_gone_) return;
  FileSystem& files = *options_.files;
  options_.check_fence();
  for (const CheckpointEntry& entry : list_checkpoints(files, options_.directory, false)) {
    if (!entry.whole && is_unfinished_copy(files, entry.path)) files.remove_tree(entry.path);
  }
  unfinished_are_gone_ = true;
}

void MirrorFolder::rotate(const std::string& run_id, const RotationPolicy& policy) {
  FileSystem& files = *options_.files;
  options_.check_fence();
  remove_unfinished();
  if (!others_are_quarantined_) {
    for (const CheckpointEntry& entry : list_checkpoints(files, options_.directory, false)) {
      if (!entry.whole || entry.foreign || entry.run_id == run_id) continue;
      options_.report("another run's checkpoint is renamed: " +
                      quarantine(files, options_.directory, entry.step, QuarantineReason::kOld));
    }
    others_are_quarantined_ = true;
  }
  (void)checkpoint::rotate(files, options_.directory, run_id, policy, options_.report);
}

void MirrorFolder::discard(const CheckpointCopy& copy) {
  if (copy.staging.empty()) return;
  try {
    options_.files->remove_tree(copy.staging);
  } catch (const Error& error) {
    log::debug(std::string("left to the next start: ") + error.what());
  }
}

Manifest MirrorFolder::read_index(const std::string& folder) {
  // Nobody else writes to a mirror; a mounted one may be unmounted and mounted again.
  const bool is_store = options_.files->object_store() != nullptr;
  if (const auto known = indices_.find(folder); is_store && known != indices_.end()) {
    return known->second;
  }
  const std::string path = join_path(folder, kTreeIndexFile);
  Manifest index;
  index.run_id = kTreeRun;
  if (const auto text = read_if_there(*options_.files, path, kMaxCopyManifestBytes)) {
    try {
      index = parse_manifest(*text, path, FileNames::kPaths);
    } catch (const Error& error) {
      log::debug(std::string("the index is rewritten: ") + error.what());
    }
  }
  indices_[folder] = index;
  return index;
}

void MirrorFolder::write_index(const std::string& folder, const Manifest& index) {
  options_.check_fence();
  const std::string path = join_path(folder, kTreeIndexFile);
  indices_.erase(folder);
  write_text(locations(), path, manifest_text(index));
  options_.files->sync_directory(folder);
  indices_[folder] = index;
}

bool MirrorFolder::has_same(const std::string& target, const Manifest& index,
                            const std::string& name, const std::string& source, bool verify) const {
  FileSystem& files = *options_.files;
  const auto known = index.files.find(name);
  if (known == index.files.end() || files.type(target) != FileType::kFile) return false;
  if (!verify && files.open(target)->size() != known->second.bytes) return false;
  if (record_of(locations(), source) != known->second) return false;
  return !verify || is_undamaged(target, known->second);
}

bool MirrorFolder::is_undamaged(const std::string& target, const FileRecord& record) const {
  try {
    options_.files->drop_cached(target);
    verify_file(*options_.files->open(target), record, target);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint) throw;
    options_.report(std::string(error.what()) + "; it is copied again");
    return false;
  }
}

bool MirrorFolder::is_kept(const std::string& target, const Manifest& index,
                           const std::string& name, const std::string& source,
                           const std::optional<FormerEnd>& former) const {
  FileSystem& files = *options_.files;
  const auto known = index.files.find(name);
  if (!former || known == index.files.end() || files.type(target) != FileType::kFile) return false;
  const FinishedModel there = inspect_finished_model(files, options_.directory, false);
  if (!there.manifest || there.manifest->run_id != former->run_id ||
      there.manifest->step != former->step) {
    return false;
  }
  if (record_of(locations(), source, known->second.bytes) == known->second) return false;
  if (!is_undamaged(target, known->second)) return false;
  log::info(
      format_text("'{}' differs from the copy '{}', which was made when the run ended; the "
                  "copy is kept: delete it if the new one shall replace it",
                  source, target));
  return true;
}

// Copies manifest.json, which has its own checksum and is not in the index.
void MirrorFolder::copy_manifest(const std::string& path) {
  FileSystem& files = *options_.files;
  const std::string text = read_copy_source(*options_.local, path);
  try {
    (void)parse_manifest(text, path);
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what());
  }
  const std::string target = join_path(options_.directory, kManifestFile);
  const FileType type = files.type(target);
  if (type == FileType::kFile) {
    files.drop_cached(target);
    if (files.open(target)->size() == text.size() && files.read_all(target) == text) return;
  }
  options_.check_fence();
  if (type == FileType::kDirectory) (void)quarantine_file(files, target);
  (void)replace_file(locations(), path, target);
  files.sync_directory(options_.directory);
}

void MirrorFolder::copy_file(const std::string& path, const std::optional<FileRecord>& expected,
                             const std::optional<FormerEnd>& former) {
  const std::string name = file_name(path);
  if (name == kManifestFile) return copy_manifest(path);
  const std::string target = join_path(options_.directory, name);
  Manifest index = read_index(options_.directory);
  if (has_same(target, index, name, path, true)) return;
  if (is_kept(target, index, name, path, former)) return;
  options_.check_fence();
  FileSystem& files = *options_.files;
  if (files.type(target) == FileType::kDirectory) (void)quarantine_file(files, target);
  index.files[name] = replace_file(locations(), path, target, expected ? &*expected : nullptr);
  write_index(options_.directory, index);
}

void MirrorFolder::copy_tree(const std::string& folder, const std::string& name, bool verify,
                             const std::optional<FormerEnd>& former) {
  const std::string target = join_path(options_.directory, name);
  std::vector<std::string> paths;
  try {
    list_tree(*options_.local, folder, "", paths);
  } catch (const Error& error) {
    throw SourceError(error.kind(), error.what(), error.system_error());
  }
  if (paths.empty()) return;
  options_.files->refuse_link(target);
  options_.files->make_directories(target);
  const Manifest before = read_index(target);
  Manifest index;
  index.run_id = kTreeRun;
  for (const std::string& path : paths) {
    const std::string source = join_path(folder, path);
    const std::string copy = join_path(target, path);
    if (has_same(copy, before, path, source, verify) ||
        is_kept(copy, before, path, source, former)) {
      index.files[path] = before.files.at(path);
      continue;
    }
    options_.files->make_directories(parent_path(copy));
    options_.check_fence();
    index.files[path] = replace_file(locations(), source, copy);
  }
  if (index != before) write_index(target, index);
}

int64_t MirrorFolder::note_of_use(const std::string& tree, bool is_used, int64_t now) {
  const std::string path = join_path(tree, kLastUse);
  if (!is_used && options_.files->exists(path)) {
    const std::string text = options_.files->read_all(path, 64);
    int64_t seconds = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (read.ec == std::errc() && seconds <= now) return seconds;
  }
  options_.check_fence();
  write_text(locations(), path, std::to_string(now));
  return now;
}

void MirrorFolder::remove_unused_trees(const std::string& parent,
                                       const std::vector<std::string>& used,
                                       std::chrono::seconds unused) {
  FileSystem& files = *options_.files;
  const std::string folder = join_path(options_.directory, parent);
  if (files.type(folder) != FileType::kDirectory) return;
  const auto now = static_cast<int64_t>(unix_seconds());
  for (const std::string& name : files.list(folder)) {
    const std::string tree = join_path(folder, name);
    // A tree without an index was not copied by this program.
    if (!files.exists(join_path(tree, kTreeIndexFile))) continue;
    const bool is_used = std::ranges::find(used, name) != used.end();
    if (now - note_of_use(tree, is_used, now) <= unused.count()) continue;
    options_.check_fence();
    files.remove_tree(tree);
    indices_.erase(tree);
    log::info(format_text("removed from the mirror: '{}', which no session has used for {} days",
                          tree,
                          std::chrono::duration_cast<std::chrono::hours>(unused).count() / 24));
  }
}

}  // namespace finetune::checkpoint
