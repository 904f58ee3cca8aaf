// SPDX-License-Identifier: MIT
#include "finetune/tensor/snapshot.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/uncached_copy.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/stream_copy.h"

namespace finetune {
namespace {

constexpr uint64_t kCopyAlignment = 64;
constexpr uint64_t kCopyChunkBytes = uint64_t{4} << 20;
constexpr unsigned kMostThreads = 4;  // more threads would exceed the memory bandwidth

uint64_t aligned(uint64_t bytes) {
  return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
}

struct Copy {
  char* target = nullptr;
  const char* source = nullptr;
  uint64_t bytes = 0;
};

// Copies with several threads: the kernel first clears new memory page by page, so two threads take
// half the time even if one would saturate the memory bandwidth.
void copy_all(const std::vector<Copy>& copies) {
  std::vector<Copy> chunks;
  for (const Copy& copy : copies) {
    for (uint64_t done = 0; done < copy.bytes; done += kCopyChunkBytes) {
      chunks.push_back({.target = copy.target + done,
                        .source = copy.source + done,
                        .bytes = std::min(kCopyChunkBytes, copy.bytes - done)});
    }
  }
  const size_t threads =
      std::clamp<size_t>(std::min(std::thread::hardware_concurrency(), kMostThreads), 1,
                         std::max<size_t>(1, chunks.size()));
  const auto copy_share = [&](size_t share) {
    const size_t end = chunks.size() * (share + 1) / threads;
    for (size_t i = chunks.size() * share / threads; i < end; ++i) {
      uncached_copy(chunks[i].target, chunks[i].source, chunks[i].bytes);
    }
  };
  std::vector<std::thread> others;
  others.reserve(threads);
  size_t here = 1;  // shares that this thread copies
  try {
    for (size_t share = 1; share < threads; ++share) others.emplace_back(copy_share, share);
  } catch (const std::exception&) {  // the thread could not be created
    here = threads - others.size();
  }
  copy_share(0);
  for (size_t share = others.size() + 1; share < others.size() + here; ++share) copy_share(share);
  for (std::thread& other : others) other.join();
}

}  // namespace

struct Snapshot::Shared {
  struct Held {
    Tensor live;
    uint64_t offset = 0;  // in the copies
  };

  std::mutex mutex;
  std::vector<Held> held;
  uint64_t bytes = 0;
  std::shared_ptr<HostPages> copies;     // set after detach()
  std::unique_ptr<StagedReader> reader;  // of the device, if a held tensor is on one

  [[nodiscard]] bool is_staged(const Tensor& live) const {
    return reader && !live.is_cpu() && live.is_contiguous();
  }

  // Returns a copy, so that the live tensor is no longer referenced afterwards.
  Tensor rows(size_t index, int64_t first, int64_t count) {
    const std::lock_guard lock(mutex);
    const Held& one = held[index];
    const Tensor& live = one.live;
    if (!copies) {
      const Tensor part = live.dim() == 0 ? live : live.narrow(0, first, count);
      if (is_staged(part)) {
        Tensor piece = at::empty(part.sizes(), at::TensorOptions().dtype(part.scalar_type()));
        reader->read({{static_cast<char*>(piece.mutable_data_ptr()), part}});
        return piece;
      }
      Tensor piece = part.to(at::kCPU).contiguous();
      return piece.is_alias_of(live) ? piece.clone() : piece;
    }
    std::vector<int64_t> shape = live.sizes().vec();
    uint64_t row_bytes = live.nbytes();
    if (!shape.empty()) {
      row_bytes /= static_cast<uint64_t>(std::max<int64_t>(shape.front(), 1));
      shape.front() = count;
    }
    char* const data = copies->data() + one.offset + static_cast<uint64_t>(first) * row_bytes;
    return at::from_blob(data, shape, at::TensorOptions().dtype(live.scalar_type()));
  }
};

Snapshot::Snapshot() : shared_(std::make_shared<Shared>()) {}
Snapshot::~Snapshot() = default;

LazyTensor Snapshot::hold(std::string name, const Tensor& live) {
  FT_CHECK(!shared_->copies, "a detached snapshot takes no tensor");
  const c10::NoGradGuard no_grad;
  if (!live.is_cpu()) {
    if (!shared_->reader) shared_->reader = std::make_unique<StagedReader>(live.device());
    shared_->reader->mark();
  }
  shared_->held.push_back({.live = live.detach(), .offset = shared_->bytes});
  shared_->bytes += aligned(live.nbytes());
  return {.name = std::move(name),
          .type = live.scalar_type(),
          .shape = live.sizes().vec(),
          .rows = [shared = shared_, index = shared_->held.size() - 1](
                      int64_t first, int64_t count) { return shared->rows(index, first, count); }};
}

uint64_t Snapshot::bytes() const { return shared_->bytes; }

bool Snapshot::detach_on_device() {
  const c10::NoGradGuard no_grad;
  const std::lock_guard lock(shared_->mutex);
  if (shared_->copies || !shared_->reader) return false;  // no tensor is on a device
  const auto first = std::ranges::find_if(
      shared_->held, [](const Shared::Held& one) { return !one.live.is_cpu(); });
  const c10::Device device = first->live.device();
  if (free_memory(device) < shared_->bytes + total_memory(device) / 10) return false;
  std::vector<Tensor> clones;
  try {
    for (const Shared::Held& one : shared_->held) clones.push_back(one.live.clone());
  } catch (const c10::OutOfMemoryError&) {  // another program has taken it meanwhile
    return false;
  }
  for (size_t i = 0; i < clones.size(); ++i) shared_->held[i].live = clones[i];
  shared_->reader->mark();
  return true;
}

bool Snapshot::detach() { return detach(std::make_shared<HostPages>(bytes())); }

bool Snapshot::detach(std::shared_ptr<HostPages> memory) {
  const c10::NoGradGuard no_grad;
  const std::lock_guard lock(shared_->mutex);
  if (shared_->copies || shared_->bytes == 0) return true;
  FT_CHECK(memory->size() >= shared_->bytes, "room for all copies");
  if (memory->data() == nullptr) return false;
  std::vector<Copy> copies;
  std::vector<StagedReader::Part> of_device;
  for (const Shared::Held& one : shared_->held) {
    char* const target = memory->data() + one.offset;
    if (shared_->is_staged(one.live)) {
      of_device.push_back({target, one.live});
    } else if (one.live.is_cpu() && one.live.is_contiguous()) {
      copies.push_back({.target = target,
                        .source = static_cast<const char*>(one.live.const_data_ptr()),
                        .bytes = one.live.nbytes()});
    } else {
      at::from_blob(target, one.live.sizes(), at::TensorOptions().dtype(one.live.scalar_type()))
          .copy_(one.live);
    }
  }
  copy_all(copies);
  if (!of_device.empty()) shared_->reader->read(of_device);
  shared_->copies = std::move(memory);
  return true;
}

LazyTensor lazy_or_held(Snapshot* snapshot, std::string name, const Tensor& tensor) {
  return snapshot != nullptr ? snapshot->hold(std::move(name), tensor)
                             : lazy_tensor(std::move(name), tensor);
}

}  // namespace finetune
