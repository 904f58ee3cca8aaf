// SPDX-License-Identifier: MIT
#include "finetune/base/interruptible_reads.h"

#include <algorithm>
#include <utility>

#include "base/forwarding_file_system.h"
#include "finetune/base/interrupt.h"

namespace finetune {
namespace {

constexpr size_t kBetweenLooks = size_t{16} << 20;  // bytes

class InterruptibleFile final : public ReadableFile {
 public:
  InterruptibleFile(std::unique_ptr<ReadableFile> file, std::string phase)
      : file_(std::move(file)), phase_(std::move(phase)) {}

  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  void read_at(uint64_t offset, void* data, size_t size) const override {
    char* bytes = static_cast<char*>(data);
    do {
      interrupt::throw_if_requested(phase_);
      const size_t count = std::min(size, kBetweenLooks);
      file_->read_at(offset, bytes, count);
      bytes += count;
      offset += count;
      size -= count;
    } while (size > 0);
  }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string phase_;
};

class InterruptibleReads final : public ForwardingFileSystem {
 public:
  InterruptibleReads(std::shared_ptr<FileSystem> files, std::string phase)
      : ForwardingFileSystem(std::move(files)), phase_(std::move(phase)) {}

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    interrupt::throw_if_requested(phase_);
    return std::make_unique<InterruptibleFile>(inner().open(path), phase_);
  }

 private:
  std::string phase_;
};

}  // namespace

std::shared_ptr<FileSystem> interruptible_reads(std::shared_ptr<FileSystem> files,
                                                std::string phase) {
  return std::make_shared<InterruptibleReads>(std::move(files), std::move(phase));
}

}  // namespace finetune
