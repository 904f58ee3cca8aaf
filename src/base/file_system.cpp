// SPDX-License-Identifier: MIT
#include "finetune/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/quota.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system_stand_in.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

[[noreturn]] void fail(const std::string& action, const std::string& path, int error) {
  std::string message = "cannot " + action + " '" + path + "': " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) message += "; free some space and run the command again";
  if (error == EACCES || error == EPERM || error == EROFS) {
    message += "; choose a place that you may write to, or change its permissions";
  }
  throw Error(ErrorKind::kIo, message, error);
}

// Returns why a file of this mode cannot be read at any offset; nullptr if it can.
const char* why_not_readable(mode_t mode) {
  if (S_ISREG(mode)) return nullptr;
  if (S_ISDIR(mode)) return std::strerror(EISDIR);
  if (S_ISFIFO(mode)) return "it is a FIFO (named pipe) where a regular file is needed";
  if (S_ISSOCK(mode)) return "it is a socket where a regular file is needed";
  return "it is a device where a regular file is needed";
}

[[noreturn]] void refuse_to_open(const std::string& path, const char* why, int error) {
  throw Error(ErrorKind::kIo, "cannot open '" + path + "': " + why, error);
}

// Opens a regular file. Opening a FIFO waits for a writer, and opening some devices waits or has
// effects: O_NONBLOCK returns at once, and then the type is checked.
int open_regular(const std::string& path, struct stat& status) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  // A socket cannot be opened. A regular file on which another process has a lease (a file server)
  // can be opened after the lease is released; a blocking open waits for that.
  if (descriptor < 0 && (errno == ENXIO || errno == EWOULDBLOCK)) {
    const int error = errno;
    if (::stat(path.c_str(), &status) != 0) fail("open", path, errno);
    if (const char* why = why_not_readable(status.st_mode)) refuse_to_open(path, why, error);
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (descriptor < 0) fail("open", path, errno);
  const char* why = nullptr;
  int error = 0;
  if (::fstat(descriptor, &status) != 0) {
    error = errno;
    why = std::strerror(error);
  } else {
    why = why_not_readable(status.st_mode);
    error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  }
  if (why == nullptr) return descriptor;
  ::close(descriptor);
  refuse_to_open(path, why, error);
}

// Opens a regular file for writing. A link is not followed: in a folder that others can write to,
// it could lead to any file of the user. Opening a FIFO would wait for a reader: it is refused at
// once.
int open_own_file(const std::string& path, int flags, const std::string& action) {
  flags |= O_WRONLY | O_CLOEXEC | O_NOFOLLOW;
  int descriptor = ::open(path.c_str(), flags | O_NONBLOCK, 0644);
  struct stat status = {};
  if (descriptor < 0 && errno == EWOULDBLOCK) descriptor = ::open(path.c_str(), flags, 0644);
  if (descriptor < 0) {
    const int error = errno;
    const bool is_known = ::lstat(path.c_str(), &status) == 0;
    const char* why = nullptr;
    if (is_known && S_ISLNK(status.st_mode)) why = "it is a symbolic link; remove it";
    if (is_known && error == ENXIO) why = why_not_readable(status.st_mode);
    if (why == nullptr) fail(action, path, error);
    throw Error(ErrorKind::kIo, "cannot " + action + " '" + path + "': " + why, error);
  }
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return descriptor;
  ::close(descriptor);
  throw Error(ErrorKind::kIo,
              "cannot " + action + " '" + path + "': " + why_not_readable(status.st_mode), EINVAL);
}

class LocalWritableFile final : public WritableFile {
 public:
  LocalWritableFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  ~LocalWritableFile() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(const void* data, size_t size) override {
    const char* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(descriptor_, bytes, size);
      if (written < 0) {
        if (errno == EINTR) continue;
        fail("write", path_, errno);
      }
      bytes += written;
      size -= static_cast<size_t>(written);
    }
  }

  void sync() override {
    if (::fsync(descriptor_) != 0) fail("sync", path_, errno);
  }

  void close() override {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0 && errno != EINTR) fail("close", path_, errno);
  }

 private:
  std::string path_;
  int descriptor_;
};

class LocalReadableFile final : public ReadableFile {
 public:
  LocalReadableFile(std::string path, int descriptor, uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}
  ~LocalReadableFile() override { ::close(descriptor_); }

  [[nodiscard]] uint64_t size() const override { return size_; }

  void read_at(uint64_t offset, void* data, size_t size) const override {
    char* bytes = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t count = ::pread(descriptor_, bytes, size, static_cast<off_t>(offset));
      if (count < 0) {
        if (errno == EINTR) continue;
        fail("read", path_, errno);
      }
      if (count == 0) {
        throw Error(ErrorKind::kIo,
                    format_text("'{}' ends {} bytes too early; it was truncated while being read",
                                path_, size));
      }
      bytes += count;
      offset += static_cast<uint64_t>(count);
      size -= static_cast<size_t>(count);
    }
  }

 private:
  std::string path_;
  int descriptor_;
  uint64_t size_;
};

class LocalFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return open_for_writing(path, O_TRUNC, "create");
  }

  std::unique_ptr<WritableFile> append(const std::string& path) override {
    return open_for_writing(path, O_APPEND, "append to");
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    struct stat status = {};
    const int descriptor = open_regular(path, status);
    return std::make_unique<LocalReadableFile>(path, descriptor,
                                               static_cast<uint64_t>(status.st_size));
  }

  void make_directories(const std::string& path) override {
    struct stat status = {};
    if (path.empty() || path == "/") return;
    if (::stat(path.c_str(), &status) == 0) {
      if (!S_ISDIR(status.st_mode)) fail("make the folder", path, ENOTDIR);
      return;
    }
    make_directories(parent_path(path));
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) fail("make the folder", path, errno);
  }

  void make_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) != 0) fail("make the folder", path, errno);
  }

  void sync_directory(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail("open the folder", path, errno);
    const int result = ::fsync(descriptor);
    const int error = errno;
    ::close(descriptor);
    // Some network file systems do not support fsync of a folder.
    if (result != 0 && error != EINVAL && error != ENOTSUP) fail("sync the folder", path, error);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail("rename '" + from + "' to", to, errno);
  }

  void rename_new(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) fail("rename '" + from + "' to", to, errno);
    // File systems without RENAME_NOREPLACE (FUSE mounts): the caller owns the folder's lock, so
    // checking first is sufficient.
    if (type(to) != FileType::kMissing) fail("rename '" + from + "' to", to, EEXIST);
    rename(from, to);
  }

  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail("remove", path, errno);
  }

  void remove_directory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) fail("remove the folder", path, errno);
  }

  void truncate(const std::string& path, uint64_t size) override {
    const int descriptor = open_own_file(path, 0, "shorten");
    const int result = ::ftruncate(descriptor, static_cast<off_t>(size));
    const int error = errno;
    ::close(descriptor);
    if (result != 0) fail("shorten", path, error);
  }

  void drop_cached(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return;
    (void)::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
  }

  FileType type(const std::string& path) override {
    struct stat status = {};
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return FileType::kMissing;
      fail("look at", path, errno);
    }
    if (S_ISREG(status.st_mode)) return FileType::kFile;
    if (S_ISDIR(status.st_mode)) return FileType::kDirectory;
    if (S_ISLNK(status.st_mode)) return FileType::kLink;
    return FileType::kOther;
  }

  std::vector<std::string> list(const std::string& path) override {
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) fail("list the folder", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    const int error = errno;
    ::closedir(directory);
    if (error != 0) fail("list the folder", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  uint64_t free_bytes(const std::string& path) override {
    struct statvfs status = {};
    if (::statvfs(path.c_str(), &status) != 0) fail("ask for the free space of", path, errno);
    if (status.f_blocks == 0) return UINT64_MAX;  // some FUSE file systems report no sizes
    const uint64_t free = uint64_t{status.f_bavail} * status.f_frsize;
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return free;
    const uint64_t left = quota_bytes_left(descriptor);
    ::close(descriptor);
    return std::min(free, left);
  }

 private:
  static std::unique_ptr<WritableFile> open_for_writing(const std::string& path, int flags,
                                                        const std::string& action) {
    return std::make_unique<LocalWritableFile>(path, open_own_file(path, O_CREAT | flags, action));
  }
};

std::atomic<FileSystem*> stand_in_for_local = nullptr;

}  // namespace

FileSystem& FileSystem::local() {
  static LocalFileSystem instance;
  FileSystem* const stand_in = stand_in_for_local.load(std::memory_order_acquire);
  return stand_in == nullptr ? instance : *stand_in;
}

FileSystemStandIn::FileSystemStandIn(FileSystem& stand_in) {
  FileSystem* none = nullptr;
  FT_CHECK(stand_in_for_local.compare_exchange_strong(none, &stand_in), "a second stand-in");
}

FileSystemStandIn::~FileSystemStandIn() { stand_in_for_local = nullptr; }

void FileSystem::refuse_link(const std::string& path) {
  if (type(path) != FileType::kLink) return;
  throw Error(ErrorKind::kIo,
              "'" + path + "' is a symbolic link, which is not followed; remove it");
}

std::map<std::string, FileSystem::Entry> FileSystem::entries(const std::string& path) {
  std::map<std::string, Entry> found;
  for (const std::string& name : list(path)) found[name].type = type(join_path(path, name));
  return found;
}

std::string FileSystem::read_all(const std::string& path, uint64_t limit) {
  const std::unique_ptr<ReadableFile> file = open(path);
  if (file->size() > limit) {
    throw Error(ErrorKind::kIo,
                format_text("'{}' has {} bytes, more than the {} that such a file may have", path,
                            file->size(), limit));
  }
  std::string content(file->size(), '\0');
  file->read_at(0, content.data(), content.size());
  return content;
}

void FileSystem::write_atomically(const std::string& path, std::string_view content) {
  static thread_local std::mt19937_64 names{std::random_device{}()};
  const std::string temporary =
      join_path(parent_path(path), format_text(".tmp-{}.{}", file_name(path), names()));
  try {
    const std::unique_ptr<WritableFile> file = create(temporary);
    file->write(content);
    file->sync();
    file->close();
    rename(temporary, path);
  } catch (const Error&) {
    try {
      if (exists(temporary)) remove_file(temporary);
    } catch (const Error&) {  // report the first error
    }
    throw;
  }
  sync_directory(parent_path(path));
}

void FileSystem::remove_tree(const std::string& path) {
  switch (type(path)) {
    case FileType::kMissing:
      return;
    case FileType::kDirectory:
      for (const std::string& name : list(path)) remove_tree(join_path(path, name));
      remove_directory(path);
      return;
    default:
      remove_file(path);
  }
}

std::string join_path(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(path.substr(0, slash));
}

std::string file_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace finetune
