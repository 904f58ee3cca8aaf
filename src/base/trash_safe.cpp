// SPDX-License-Identifier: MIT
#include "finetune/base/trash_safe.h"

#include <utility>

namespace finetune {
namespace {

class TrashSafeFileSystem final : public FileSystem {
 public:
  explicit TrashSafeFileSystem(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}

  void remove_file(const std::string& path) override {
    if (inner_->type(path) == FileType::kFile) inner_->truncate(path, 0);
    inner_->remove_file(path);
  }

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
  void remove_directory(const std::string& path) override { inner_->remove_directory(path); }
  void truncate(const std::string& path, uint64_t size) override { inner_->truncate(path, size); }
  void drop_cached(const std::string& path) override { inner_->drop_cached(path); }
  FileType type(const std::string& path) override { return inner_->type(path); }
  std::vector<std::string> list(const std::string& path) override { return inner_->list(path); }
  uint64_t free_bytes(const std::string& path) override { return inner_->free_bytes(path); }

 private:
  std::shared_ptr<FileSystem> inner_;
};

}  // namespace

std::shared_ptr<FileSystem> trash_safe(std::shared_ptr<FileSystem> files) {
  return std::make_shared<TrashSafeFileSystem>(std::move(files));
}

std::shared_ptr<FileSystem> shared_local_files() {
  return {&FileSystem::local(), [](FileSystem*) {}};
}

}  // namespace finetune
