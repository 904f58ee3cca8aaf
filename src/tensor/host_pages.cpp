// SPDX-License-Identifier: MIT
#include "finetune/tensor/host_pages.h"

#include <sys/mman.h>

namespace finetune {
namespace {

constexpr uint64_t kPageBytes = 4096;

}  // namespace

HostPages::HostPages(uint64_t bytes) : bytes_(bytes) {
  void* const address = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return;
  data_ = static_cast<char*>(address);
  (void)::madvise(address, bytes_, MADV_HUGEPAGE);
}

HostPages::~HostPages() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void HostPages::populate() {
  if (data_ == nullptr) return;
  for (uint64_t offset = 0; offset < bytes_; offset += kPageBytes) {
    *static_cast<volatile char*>(data_ + offset) = 0;
  }
}

}  // namespace finetune
