// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"

namespace finetune::testing {

// A local folder that behaves like a mounted Drive: calls fail for a while with the errno values of
// such mounts, there is a quota, renaming a folder may fail or lose files, and written files may
// appear late or damaged. Thread-safe.
class DriveFileSystem final : public FileSystem {
 public:
  enum class Renames { kWork, kFail, kLoseFiles };

  explicit DriveFileSystem(FileSystem& inner) : inner_(inner) {}

  // Makes `count` calls fail, starting after the next `after` calls.
  void fail(int error, int64_t count = std::numeric_limits<int64_t>::max(), int64_t after = 0) {
    const std::lock_guard guard(mutex_);
    error_ = error;
    fail_from_ = calls_ + after + 1;
    fail_until_ = count > std::numeric_limits<int64_t>::max() - fail_from_
                      ? std::numeric_limits<int64_t>::max()
                      : fail_from_ + count - 1;
  }
  // Makes every n-th call fail; 0: none.
  void fail_every(int error, int64_t n) {
    const std::lock_guard guard(mutex_);
    error_ = error;
    every_ = n;
  }
  void work_again() {
    const std::lock_guard guard(mutex_);
    fail_until_ = 0;
    every_ = 0;
    quota_ = std::numeric_limits<uint64_t>::max();
  }
  void set_quota(uint64_t bytes_from_now) {
    const std::lock_guard guard(mutex_);
    quota_ = bytes_from_now;
  }
  void set_renames(Renames renames) { renames_ = renames; }
  // Hides a new file from the first `looks` look-ups.
  void show_files_after(int looks) { late_looks_ = looks; }
  // Stores the next file of this name with one wrong byte.
  void damage_next(const std::string& name) {
    const std::lock_guard guard(mutex_);
    damaged_name_ = name;
  }
  [[nodiscard]] int64_t calls() const {
    const std::lock_guard guard(mutex_);
    return calls_;
  }
  [[nodiscard]] uint64_t written() const {
    const std::lock_guard guard(mutex_);
    return written_;
  }

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    begin("create", path);
    auto file = std::make_unique<File>(*this, path, inner_.create(path));
    const std::lock_guard guard(mutex_);
    if (late_looks_ > 0) late_[path] = late_looks_;
    if (!damaged_name_.empty() && file_name(path) == damaged_name_) {
      file->damage_ = true;
      damaged_name_.clear();
    }
    return file;
  }
  std::unique_ptr<WritableFile> append(const std::string& path) override {
    begin("append to", path);
    return inner_.append(path);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    begin("open", path);
    if (is_late(path)) throw_error("open", path, ENOENT);
    return inner_.open(path);
  }
  void make_directories(const std::string& path) override {
    begin("make", path);
    inner_.make_directories(path);
  }
  void make_directory(const std::string& path) override {
    begin("make", path);
    inner_.make_directory(path);
  }
  void sync_directory(const std::string& path) override { begin("sync", path); }
  void rename(const std::string& from, const std::string& to) override {
    begin("rename", from);
    inner_.rename(from, to);
  }
  void rename_new(const std::string& from, const std::string& to) override {
    begin("rename", from);
    if (inner_.type(from) == FileType::kDirectory) {
      if (renames_ == Renames::kFail) throw_error("rename", from, ENOTSUP);
      if (renames_ == Renames::kLoseFiles) {
        inner_.make_directory(to);
        for (const std::string& name : inner_.list(from)) {
          inner_.remove_file(join_path(from, name));
        }
        inner_.remove_directory(from);
        return;
      }
    }
    inner_.rename_new(from, to);
  }
  void remove_file(const std::string& path) override {
    begin("remove", path);
    inner_.remove_file(path);
  }
  void remove_directory(const std::string& path) override {
    begin("remove", path);
    inner_.remove_directory(path);
  }
  void truncate(const std::string& path, uint64_t size) override {
    begin("shorten", path);
    inner_.truncate(path, size);
  }
  FileType type(const std::string& path) override {
    begin("look at", path);
    return is_late(path) ? FileType::kMissing : inner_.type(path);
  }
  std::vector<std::string> list(const std::string& path) override {
    begin("list", path);
    return inner_.list(path);
  }
  uint64_t free_bytes(const std::string& path) override {
    begin("ask for space", path);
    return inner_.free_bytes(path);
  }

 private:
  class File final : public WritableFile {
   public:
    File(DriveFileSystem& drive, std::string path, std::unique_ptr<WritableFile> inner)
        : drive_(drive), path_(std::move(path)), inner_(std::move(inner)) {}

    using WritableFile::write;
    void write(const void* data, size_t size) override {
      drive_.begin("write", path_);
      drive_.use_quota(path_, size);
      std::string bytes(static_cast<const char*>(data), size);
      if (damage_ && !bytes.empty()) bytes[bytes.size() / 2] ^= 1;
      inner_->write(bytes.data(), bytes.size());
    }
    void sync() override { drive_.begin("sync", path_); }
    void close() override {
      drive_.begin("close", path_);
      inner_->close();
    }

    bool damage_ = false;

   private:
    DriveFileSystem& drive_;
    std::string path_;
    std::unique_ptr<WritableFile> inner_;
  };

  [[noreturn]] static void throw_error(const std::string& what, const std::string& path,
                                       int error) {
    throw Error(ErrorKind::kIo, "cannot " + what + " '" + path + "': " + std::strerror(error),
                error);
  }
  void begin(const std::string& what, const std::string& path) {
    const std::lock_guard guard(mutex_);
    ++calls_;
    if (calls_ >= fail_from_ && calls_ <= fail_until_) throw_error(what, path, error_);
    if (every_ > 0 && calls_ % every_ == 0) throw_error(what, path, error_);
  }
  void use_quota(const std::string& path, size_t size) {
    const std::lock_guard guard(mutex_);
    if (size > quota_) throw_error("write", path, EDQUOT);
    quota_ -= size;
    written_ += size;
  }
  bool is_late(const std::string& path) {
    const std::lock_guard guard(mutex_);
    const auto found = late_.find(path);
    if (found == late_.end()) return false;
    if (--found->second <= 0) late_.erase(found);
    return true;
  }

  FileSystem& inner_;
  mutable std::mutex mutex_;
  int64_t calls_ = 0;
  int error_ = EIO;
  int64_t fail_from_ = std::numeric_limits<int64_t>::max();
  int64_t fail_until_ = 0;
  int64_t every_ = 0;
  uint64_t quota_ = std::numeric_limits<uint64_t>::max();
  uint64_t written_ = 0;
  Renames renames_ = Renames::kWork;
  int late_looks_ = 0;
  std::map<std::string, int> late_;
  std::string damaged_name_;
};

}  // namespace finetune::testing
