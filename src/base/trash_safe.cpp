// SPDX-License-Identifier: MIT
#include "finetune/base/trash_safe.h"

#include <utility>

#include "base/forwarding_file_system.h"

namespace finetune {
namespace {

class TrashSafeFileSystem final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;

  void remove_file(const std::string& path) override {
    if (inner().type(path) == FileType::kFile) inner().truncate(path, 0);
    inner().remove_file(path);
  }
};

}  // namespace

std::shared_ptr<FileSystem> trash_safe(std::shared_ptr<FileSystem> files) {
  return std::make_shared<TrashSafeFileSystem>(std::move(files));
}

std::shared_ptr<FileSystem> shared_local_files() {
  return {&FileSystem::local(), [](FileSystem*) {}};
}

}  // namespace finetune
