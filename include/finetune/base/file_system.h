// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// A file being written sequentially. Every member throws Error(kIo) with the path, the system's
// reason and, on a full disk, a remedy. Destroying an unclosed file closes it silently and leaves
// its content unspecified, so callers that keep the file must call sync() and close().
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void write(const void* data, size_t size) = 0;
  virtual void sync() = 0;  // fsync; never retried on the same file after a failure
  virtual void close() = 0;

  void write(std::string_view text) { write(text.data(), text.size()); }
};

// A regular file with reads at any offset; open() refuses other file types. read_at() throws
// Error(kIo) if fewer than `size` bytes are available. Not mapped: a file that shrinks causes an
// error instead of SIGBUS.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  [[nodiscard]] virtual uint64_t size() const = 0;
  virtual void read_at(uint64_t offset, void* data, size_t size) const = 0;
};

enum class FileType { kMissing, kFile, kDirectory, kLink, kOther };

// What an object store can do beyond a file system. An object store has no folders: one is there as
// long as a path below it, and is renamed object by object. A file that is written replaces another
// of its name at once, when it is closed.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // A file of the local file system and an object, in the direction of the transfer.
  struct Transfer {
    std::string from = {};
    std::string to = {};
    uint64_t bytes = 0;
  };
  // Copy files, several at a time, to new or existing paths: upload() local files, download()
  // objects into local folders that exist, without syncing them. Call `may_continue` often, which
  // may throw and thereby ends the transfers, and `arrived` for each file, also if another one
  // fails; both on this thread. Throw the first failure.
  virtual void upload(const std::vector<Transfer>& files, const std::function<void()>& may_continue,
                      const std::function<void(const Transfer&)>& arrived) = 0;
  virtual void download(const std::vector<Transfer>& files,
                        const std::function<void()>& may_continue,
                        const std::function<void(const Transfer&)>& arrived) = 0;
  // Whether upload() has compared the stored bytes with the local ones when it returns.
  [[nodiscard]] virtual bool checks_uploads() = 0;
  // Writes a small object unless one of this name is there; returns whether it did. Where the store
  // knows no such condition, it is replaced.
  [[nodiscard]] virtual bool write_new(const std::string& path, std::string_view content) = 0;

  // What the store charges for, since this object was made.
  struct Use {
    int64_t writes = 0;  // requests that write, copy or list ("class A")
    int64_t reads = 0;   // requests that read ("class B")
    uint64_t sent = 0;   // bytes
    uint64_t received = 0;
  };
  [[nodiscard]] virtual Use use() const { return {}; }
};

// All file operations that change state, and the related reads, behind one interface, so that tests
// can inject faults. Paths are plain strings. All members throw Error(kIo) unless documented
// otherwise. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;  // truncates
  virtual std::unique_ptr<WritableFile> append(const std::string& path) = 0;
  [[nodiscard]] virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;

  virtual void make_directories(const std::string& path) = 0;  // parents too; may exist
  virtual void make_directory(const std::string& path) = 0;    // mode 0755; fails if it exists
  virtual void sync_directory(const std::string& path) = 0;
  virtual void rename(const std::string& from, const std::string& to) = 0;  // replaces a file
  // Fails if `to` exists.
  virtual void rename_new(const std::string& from, const std::string& to) = 0;
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_directory(const std::string& path) = 0;  // must be empty
  virtual void truncate(const std::string& path, uint64_t size) = 0;

  // Null: not an object store.
  [[nodiscard]] virtual ObjectStore* object_store() { return nullptr; }

  // Drops a synced file from the page cache, so that the next read comes from the device.
  virtual void drop_cached(const std::string& path) { (void)path; }  // never fails

  [[nodiscard]] virtual FileType type(const std::string& path) = 0;  // links are not followed
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& path) = 0;  // sorted names
  struct Entry {
    FileType type = FileType::kMissing;
    std::optional<uint64_t> bytes = {};  // of a file, where it is known without opening it
  };
  // The names of list() with their types: one request to an object store.
  [[nodiscard]] virtual std::map<std::string, Entry> entries(const std::string& path);
  [[nodiscard]] virtual uint64_t free_bytes(const std::string& path) = 0;

  // Convenience functions.
  [[nodiscard]] bool exists(const std::string& path) { return type(path) != FileType::kMissing; }
  // Throws Error(kIo) if the path is a symbolic link: for folders of the program's own.
  void refuse_link(const std::string& path);
  [[nodiscard]] virtual std::string read_all(const std::string& path, uint64_t limit = UINT64_MAX);
  // Writes `path` atomically: temporary file in the same folder, sync, rename, sync of the folder.
  void write_atomically(const std::string& path, std::string_view content);
  virtual void remove_tree(const std::string& path);  // never follows links; may be missing

  // The local file system of this machine.
  static FileSystem& local();
};

// Returns "dir/name" without doubling the slash.
[[nodiscard]] std::string join_path(std::string_view directory, std::string_view name);
[[nodiscard]] std::string parent_path(std::string_view path);  // "." if there is none
[[nodiscard]] std::string file_name(std::string_view path);

}  // namespace finetune
