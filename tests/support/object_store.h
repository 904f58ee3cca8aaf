// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/forwarding_file_system.h"
#include "finetune/base/error.h"

namespace finetune::testing {

// A local folder that behaves like a bucket: no folders, no renames of them at once; `changes` has
// each object that was stored or deleted, in order. Fails at the n-th change if `fail_at` is set.
class FakeStore final : public ForwardingFileSystem, public ObjectStore {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  ObjectStore* object_store() override { return this; }
  [[nodiscard]] bool checks_uploads() override { return checks; }

  // Sizes of files are known without opening them.
  std::map<std::string, Entry> entries(const std::string& path) override {
    std::map<std::string, Entry> found;
    for (const std::string& name : list(path)) {
      const std::string one = join_path(path, name);
      found[name].type = inner().type(one);
      if (found[name].type == FileType::kFile) found[name].bytes = inner().open(one)->size();
    }
    return found;
  }
  std::vector<std::string> list(const std::string& path) override {
    return inner().exists(path) ? inner().list(path) : std::vector<std::string>();
  }

  void download(const std::vector<Transfer>& files, const std::function<void()>& may_continue,
                const std::function<void(const Transfer&)>& arrived) override {
    for (const Transfer& file : files) {
      may_continue();
      if (file_name(file.from) == cut_next) {
        cut_next.clear();
        throw Error(ErrorKind::kIo, "the store was cut off", EIO);
      }
      downloads.push_back(file_name(file.from));
      std::filesystem::copy_file(file.from, file.to,
                                 std::filesystem::copy_options::overwrite_existing);
      arrived(file);
    }
  }

  [[nodiscard]] bool write_new(const std::string& path, std::string_view content) override {
    if (inner().exists(path)) return false;
    create(path)->write(content);
    return true;
  }

  void upload(const std::vector<Transfer>& files, const std::function<void()>& may_continue,
              const std::function<void(const Transfer&)>& stored) override {
    for (const Transfer& file : files) {
      may_continue();
      change("+ " + file.to);
      prepare(file.to);
      std::filesystem::copy_file(file.from, file.to,
                                 std::filesystem::copy_options::overwrite_existing);
      if (file_name(file.to) == halved_next) {
        halved_next.clear();
        std::filesystem::resize_file(file.to, std::filesystem::file_size(file.to) / 2);
      }
      if (file_name(file.to) == damaged_next) {
        damaged_next.clear();
        inner().create(file.to)->write(std::string(std::filesystem::file_size(file.from), 'x'));
      }
      stored(file);
    }
  }
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    change("+ " + path);
    prepare(path);
    return inner().create(path);
  }
  void make_directories(const std::string&) override {}
  void make_directory(const std::string&) override {}
  void remove_directory(const std::string&) override {}
  void remove_file(const std::string& path) override {
    change("- " + path);
    inner().remove_file(path);
    for (std::string folder = parent_path(path); std::filesystem::is_empty(folder);
         folder = parent_path(folder)) {
      std::filesystem::remove(folder);
    }
  }
  void rename(const std::string& from, const std::string& to) override {
    change("> " + to);
    prepare(to);
    inner().rename(from, to);
  }
  void rename_new(const std::string& from, const std::string& to) override {
    if (inner().type(from) != FileType::kDirectory) return rename(from, to);
    for (const std::string& name : inner().list(from)) {
      rename_new(join_path(from, name), join_path(to, name));
    }
    std::filesystem::remove(from);
  }

  std::vector<std::string> changes;
  size_t fail_at = 0;
  // Of the next upload of this name half is stored, or other bytes; no error is reported.
  std::string halved_next;
  std::string damaged_next;
  bool checks = true;
  std::string cut_next;                // the next download of this name fails
  std::vector<std::string> downloads;  // names

 private:
  void change(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (fail_at != 0 && changes.size() + 1 == fail_at) {
      fail_at = 0;
      throw Error(ErrorKind::kIo, "the store failed at " + what, EIO);
    }
    changes.push_back(what);
  }
  static void prepare(const std::string& path) {
    std::filesystem::create_directories(parent_path(path));
  }

  std::mutex mutex_;
};

}  // namespace finetune::testing
