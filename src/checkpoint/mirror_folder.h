// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/verified_copy.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/mirror.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/checkpoint/rotation.h"

namespace finetune::checkpoint {

// The state of copying a checkpoint, so that a retry continues after the complete files.
struct CheckpointCopy {
  explicit CheckpointCopy(std::string path) : source(std::move(path)) {}

  std::string source;
  std::optional<Manifest> manifest;  // set once it was read
  std::string staging;               // empty: not started
  std::set<std::string> sent;        // files that are uploaded, and not verified yet
  std::set<std::string> verified;    // files
};

// Writes to a mirror, one operation at a time: everything is read back before it counts. All
// members throw SourceError if the local side fails, Error(kIo) or Error(kCheckpoint) if the mirror
// does, and what the two callbacks throw.
class MirrorFolder {
 public:
  struct Options {
    std::shared_ptr<FileSystem> local = {};
    std::shared_ptr<FileSystem> files = {};  // the mirror's
    std::string directory = {};
    std::function<void()> may_continue = [] {};  // between blocks; throws to abandon
    // Before a commit; throws if another session writes here.
    std::function<void()> check_fence = [] {};
    Report report = {};
    Clock* clock = &Clock::steady();
    CopyCheck check = CopyCheck::kHash;
  };
  explicit MirrorFolder(Options options) : options_(std::move(options)) {}

  void make();  // the folder itself
  void commit(CheckpointCopy& copy);
  // Deletes, once, what killed sessions have not copied to its end. Where renames work, such a copy
  // has another name. Call it after a commit: one whose manifest is not visible yet looks the same.
  void remove_unfinished();
  // The same as for the output folder; checkpoints of another run are renamed first.
  void rotate(const std::string& run_id, const RotationPolicy& policy);
  void discard(const CheckpointCopy& copy);  // deletes the staging folder; never throws

  // `expected`: the required content of the file; nullopt: it has no record.
  void copy_file(const std::string& path, const std::optional<FileRecord>& expected,
                 const std::optional<FormerEnd>& former = {});
  // With `verify`, existing copies are read and compared, otherwise only their sizes.
  void copy_tree(const std::string& folder, const std::string& name, bool verify,
                 const std::optional<FormerEnd>& former = {});
  void remove_unused_trees(const std::string& parent, const std::vector<std::string>& used,
                           std::chrono::seconds unused);

 private:
  [[nodiscard]] CopyLocations locations() const;
  std::map<std::string, FileRecord> upload(ObjectStore& store, CheckpointCopy& copy,
                                           const std::vector<std::string>& names);
  [[nodiscard]] bool compares_sizes() const;
  void write_manifest(CheckpointCopy& copy, const std::string& text);
  [[nodiscard]] bool trusts_renames();
  bool is_there(const CheckpointCopy& copy, const std::string& target);
  void stage(CheckpointCopy& copy, const std::string& target);
  [[nodiscard]] Manifest read_index(const std::string& folder);
  // Returns when a session last used a tree, from the note in it; now if there is none.
  [[nodiscard]] int64_t note_of_use(const std::string& tree, bool is_used, int64_t now);
  void write_index(const std::string& folder, const Manifest& index);
  void copy_manifest(const std::string& path);
  // Whether an undamaged copy is kept, because the mirror has this end and the file does not
  // continue the copy.
  [[nodiscard]] bool is_kept(const std::string& target, const Manifest& index,
                             const std::string& name, const std::string& source,
                             const std::optional<FormerEnd>& former) const;
  [[nodiscard]] bool is_undamaged(const std::string& target, const FileRecord& record) const;
  bool has_same(const std::string& target, const Manifest& index, const std::string& name,
                const std::string& source, bool verify) const;

  Options options_;
  mutable std::optional<bool> reads_back_;
  std::optional<bool> trusts_renames_;
  bool others_are_quarantined_ = false;
  bool unfinished_are_gone_ = false;
  std::map<std::string, Manifest> indices_;  // by folder, as they were read or written last
  std::set<std::string> verified_;  // checkpoints that were read back or verified by this object
};

}  // namespace finetune::checkpoint
