// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"

namespace finetune::testing {

// The process died here. Not derived from std::exception, so that nothing handles it as an error.
struct CrashSimulated {};

// Wraps another file system, counts the operations that change state (from 1), and fails or
// "crashes" at a chosen one. A failing or crashing write leaves half of its bytes. After a crash
// every further operation crashes too, because a dead process runs no destructors and handlers. It
// also tracks unsynced changes, so that a power cut can undo them. Syncs are only modelled, which
// keeps tests fast.
class FaultInjectingFileSystem final : public FileSystem {
 public:
  // `graveyard`: an existing folder elsewhere that keeps files that were removed without a sync.
  FaultInjectingFileSystem(FileSystem& inner, std::string graveyard)
      : inner_(inner), graveyard_(std::move(graveyard)) {}

  void crash_at(int64_t operation) { crash_at_ = operation; }
  void fail_at(int64_t operation) { fail_from_ = fail_until_ = operation; }
  void fail_from(int64_t operation) {  // like a disk that stays full
    fail_from_ = operation;
    fail_until_ = std::numeric_limits<int64_t>::max();
  }
  [[nodiscard]] int64_t operations() const { return operations_; }
  void set_free_bytes(uint64_t bytes) { free_bytes_ = bytes; }
  void fail_reads(bool fail) { reads_fail_ = fail; }

  // Changes the disk to a state after a power cut: each file keeps a random part of its unsynced
  // content (nothing, the first bytes, or zeros), and each folder the first of its unsynced
  // changes.
  void cut_power(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::map<std::string, size_t> kept;
    for (const Change& change : changes_) ++kept[change.folder];
    for (auto& item : kept) item.second = random() % (item.second + 1);
    std::map<std::string, size_t> seen;
    std::vector<bool> lost;
    for (const Change& change : changes_) {
      lost.push_back(seen[change.folder]++ >= kept[change.folder]);
    }
    for (size_t i = changes_.size(); i-- > 0;) {
      if (lost[i]) undo(changes_[i], i);
    }
    for (const auto& [path, state] : unsynced_) lose_content(path, state, random());
    changes_.clear();
    unsynced_.clear();
  }

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    begin("create '" + path + "'");
    const bool is_new = !inner_.exists(path);
    auto file = std::make_unique<File>(*this, path, inner_.create(path));
    if (is_new) note({.kind = Kind::kCreate, .folder = parent_path(path), .path = path});
    unsynced_[path] = {};
    return file;
  }
  std::unique_ptr<WritableFile> append(const std::string& path) override {
    begin("append to '" + path + "'");
    return std::make_unique<File>(*this, path, inner_.append(path));
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    check_alive();
    if (reads_fail_) throw Error(ErrorKind::kIo, "'" + path + "' cannot be read");
    return inner_.open(path);
  }
  void make_directories(const std::string& path) override {
    begin("make '" + path + "'");
    inner_.make_directories(path);
  }
  void make_directory(const std::string& path) override {
    begin("make '" + path + "'");
    inner_.make_directory(path);
    note({.kind = Kind::kMakeDirectory, .folder = parent_path(path), .path = path});
  }
  void sync_directory(const std::string& path) override {
    begin("sync '" + path + "'");
    std::erase_if(changes_, [&](const Change& change) { return change.folder == path; });
  }
  void rename(const std::string& from, const std::string& to) override {
    begin("rename '" + from + "'");
    if (inner_.exists(to)) remove_to_graveyard(to);
    move(from, to);
  }
  void rename_new(const std::string& from, const std::string& to) override {
    begin("rename '" + from + "'");
    if (inner_.exists(to)) throw Error(ErrorKind::kIo, "'" + to + "' exists");
    move(from, to);
  }
  void remove_file(const std::string& path) override {
    begin("remove '" + path + "'");
    remove_to_graveyard(path);
  }
  void remove_directory(const std::string& path) override {
    begin("remove '" + path + "'");
    inner_.remove_directory(path);
    note({.kind = Kind::kRemoveDirectory, .folder = parent_path(path), .path = path});
  }
  void truncate(const std::string& path, uint64_t size) override {
    begin("shorten '" + path + "'");
    inner_.truncate(path, size);
  }
  FileType type(const std::string& path) override {
    check_alive();
    return inner_.type(path);
  }
  std::vector<std::string> list(const std::string& path) override {
    check_alive();
    return inner_.list(path);
  }
  uint64_t free_bytes(const std::string& path) override {
    check_alive();
    return free_bytes_ ? free_bytes_ : inner_.free_bytes(path);
  }

 private:
  enum class Kind { kCreate, kMakeDirectory, kMove, kRemoveFile, kRemoveDirectory };
  struct Change {
    Kind kind;
    std::string folder;  // the folder whose sync makes the change durable
    std::string path;
    std::string from{};  // a move: the old name; a removal: the file's place in the graveyard
  };
  struct Content {
    uint64_t written = 0;
    uint64_t synced = 0;
  };

  class File final : public WritableFile {
   public:
    File(FaultInjectingFileSystem& files, std::string path, std::unique_ptr<WritableFile> inner)
        : files_(files), path_(std::move(path)), inner_(std::move(inner)) {}

    using WritableFile::write;
    void write(const void* data, size_t size) override {
      try {
        files_.begin("write '" + path_ + "'");
      } catch (...) {
        if (!files_.was_crashed_before_) put(data, size / 2);
        throw;
      }
      put(data, size);
    }
    void sync() override {
      files_.begin("sync '" + path_ + "'");
      Content& content = files_.unsynced_[path_];
      content.synced = content.written;
    }
    void close() override {
      files_.begin("close '" + path_ + "'");
      inner_->close();
    }

   private:
    void put(const void* data, size_t size) {
      inner_->write(data, size);
      files_.unsynced_[path_].written += size;
    }

    FaultInjectingFileSystem& files_;
    std::string path_;
    std::unique_ptr<WritableFile> inner_;
  };

  void check_alive() {
    was_crashed_before_ = crashed_;
    if (crashed_) throw CrashSimulated{};
  }
  void begin(const std::string& what) {
    check_alive();
    ++operations_;
    if (operations_ == crash_at_) {
      crashed_ = true;
      throw CrashSimulated{};
    }
    if (operations_ >= fail_from_ && operations_ <= fail_until_) {
      throw Error(ErrorKind::kIo, "cannot " + what + ": No space left on device");
    }
  }
  void note(Change change) { changes_.push_back(std::move(change)); }

  void move(const std::string& from, const std::string& to) {
    inner_.rename(from, to);
    rename_known(from, to, changes_.size());
    note({.kind = Kind::kMove, .folder = parent_path(to), .path = to, .from = from});
  }
  void remove_to_graveyard(const std::string& path) {
    const std::string grave = join_path(graveyard_, std::to_string(++graves_));
    inner_.rename(path, grave);
    note({.kind = Kind::kRemoveFile, .folder = parent_path(path), .path = path, .from = grave});
  }

  // Applies a move to everything recorded by path before change number `end`.
  void rename_known(const std::string& from, const std::string& to, size_t end) {
    const auto follow = [&](std::string& path) {
      if (path == from || path.rfind(from + "/", 0) == 0) path = to + path.substr(from.size());
    };
    for (size_t i = 0; i < end; ++i) {
      Change& change = changes_[i];
      follow(change.path);
      // The entry of a moved folder belongs to its parent; the contents move with it.
      follow(change.folder);
    }
    std::map<std::string, Content> renamed;
    for (const auto& [path, content] : unsynced_) {
      std::string moved = path;
      follow(moved);
      renamed[moved] = content;
    }
    unsynced_ = std::move(renamed);
  }

  void undo(const Change& change, size_t index) {
    switch (change.kind) {
      case Kind::kCreate:
      case Kind::kMakeDirectory:
        inner_.remove_tree(change.path);
        break;
      case Kind::kMove: {
        if (!inner_.exists(change.path)) break;
        const Change move = change;
        inner_.rename(move.path, move.from);
        rename_known(move.path, move.from, index);
        break;
      }
      case Kind::kRemoveFile:
        if (inner_.exists(parent_path(change.path))) inner_.rename(change.from, change.path);
        break;
      case Kind::kRemoveDirectory:
        if (inner_.exists(parent_path(change.path))) inner_.make_directory(change.path);
        break;
    }
  }

  void lose_content(const std::string& path, const Content& content, uint64_t random) {
    if (content.synced == content.written || inner_.type(path) != FileType::kFile) return;
    const uint64_t lost = content.written - content.synced;
    const uint64_t kept = random % 3 == 0 ? 0 : random % lost;
    inner_.truncate(path, content.synced + kept);
    if (random % 2 == 0) {
      const auto file = inner_.append(path);
      file->write(std::string(lost - kept, '\0'));
      file->close();
    }
  }

  FileSystem& inner_;
  std::string graveyard_;
  int64_t operations_ = 0;
  int64_t crash_at_ = 0;
  bool reads_fail_ = false;
  int64_t fail_from_ = std::numeric_limits<int64_t>::max();
  int64_t fail_until_ = 0;
  bool crashed_ = false;
  bool was_crashed_before_ = false;
  uint64_t free_bytes_ = 0;
  uint64_t graves_ = 0;
  std::vector<Change> changes_;
  std::map<std::string, Content> unsynced_;
};

}  // namespace finetune::testing
