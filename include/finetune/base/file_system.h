// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

  // An object store has no folders: one is there as long as a path below it, and is renamed object
  // by object. A file that is written replaces another of its name at once, when it is closed.
  [[nodiscard]] virtual bool is_object_store() const { return false; }
  // A file of the local file system, and where it goes to.
  struct Upload {
    std::string from = {};
    std::string to = {};
  };
  // Copies local files, several at a time, to new or existing paths. Calls `may_go_on` often, which
  // may throw, and `stored` for each file that has arrived, also if another one fails; both on this
  // thread. Returns false, and does nothing, where create() and write() serve as well.
  [[nodiscard]] virtual bool upload(const std::vector<Upload>& files,
                                    const std::function<void()>& may_go_on,
                                    const std::function<void(const Upload&)>& stored) {
    (void)files, (void)may_go_on, (void)stored;
    return false;
  }
  // Whether upload() has compared the stored bytes with the local ones when it returns true.
  [[nodiscard]] virtual bool checks_uploads() { return false; }

  // Drops a synced file from the page cache, so that the next read comes from the device.
  virtual void drop_cached(const std::string& path) { (void)path; }  // never fails

  [[nodiscard]] virtual FileType type(const std::string& path) = 0;  // links are not followed
  [[nodiscard]] virtual std::vector<std::string> list(const std::string& path) = 0;  // sorted names
  [[nodiscard]] virtual uint64_t free_bytes(const std::string& path) = 0;

  // Convenience functions.
  [[nodiscard]] bool exists(const std::string& path) { return type(path) != FileType::kMissing; }
  // Throws Error(kIo) if the path is a symbolic link: for folders of the program's own.
  void refuse_link(const std::string& path);
  [[nodiscard]] std::string read_all(const std::string& path, uint64_t limit = UINT64_MAX);
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
