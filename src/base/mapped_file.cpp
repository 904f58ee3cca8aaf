// SPDX-License-Identifier: MIT
#include "finetune/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(ErrorKind::kIo, "cannot map '" + path + "': " + std::strerror(error), error);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path, errno);
  struct stat status = {};
  int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
  if (error == 0 && !S_ISREG(status.st_mode)) error = EINVAL;
  if (error == 0 && status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
      error = errno;
    } else {
      data_ = static_cast<const std::byte*>(mapped);
      size_ = size;
      device_ = status.st_dev;
      inode_ = status.st_ino;
      guard_ = std::make_unique<BusErrorGuard>(mapped, size);
    }
  }
  ::close(descriptor);
  if (error != 0) fail(path, error);
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    device_ = other.device_;
    inode_ = other.inode_;
    guard_ = std::move(other.guard_);
  }
  return *this;
}

bool MappedFile::is_whole(const std::string& path) const {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return true;
  const bool is_this = status.st_dev == device_ && status.st_ino == inode_;
  return !is_this || static_cast<size_t>(status.st_size) >= size_;
}

void MappedFile::release() const {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): madvise's signature
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

void MappedFile::unmap() {
  guard_.reset();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): munmap's signature
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace finetune
