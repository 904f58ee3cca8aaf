// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune {

// Forwards every call to another file system; a decorator overrides what it changes.
class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return inner_->create(path);
  }
  std::unique_ptr<WritableFile> append(const std::string& path) override {
    return inner_->append(path);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return inner_->open(path);
  }
  void make_directories(const std::string& path) override { inner_->make_directories(path); }
  void make_directory(const std::string& path) override { inner_->make_directory(path); }
  void sync_directory(const std::string& path) override { inner_->sync_directory(path); }
  void rename(const std::string& from, const std::string& to) override { inner_->rename(from, to); }
  void rename_new(const std::string& from, const std::string& to) override {
    inner_->rename_new(from, to);
  }
  void remove_file(const std::string& path) override { inner_->remove_file(path); }
  void remove_directory(const std::string& path) override { inner_->remove_directory(path); }
  void truncate(const std::string& path, uint64_t size) override { inner_->truncate(path, size); }
  ObjectStore* object_store() override { return inner_->object_store(); }
  void drop_cached(const std::string& path) override { inner_->drop_cached(path); }
  FileType type(const std::string& path) override { return inner_->type(path); }
  std::vector<std::string> list(const std::string& path) override { return inner_->list(path); }
  std::map<std::string, Entry> entries(const std::string& path) override {
    // A decorator of a local file system changes type() and list().
    return object_store() == nullptr ? FileSystem::entries(path) : inner_->entries(path);
  }
  uint64_t free_bytes(const std::string& path) override { return inner_->free_bytes(path); }

 protected:
  [[nodiscard]] FileSystem& inner() const { return *inner_; }

 private:
  std::shared_ptr<FileSystem> inner_;
};

}  // namespace finetune
