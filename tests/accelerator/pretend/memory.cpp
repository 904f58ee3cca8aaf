// SPDX-License-Identifier: MIT
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "late_copies.h"

namespace pretend {
namespace {

constexpr size_t kAddresses = size_t{1} << 38;
constexpr size_t kRounding = 512;  // as in CUDA's caching allocator, so that peaks are comparable
constexpr int kNan = 0xFF;

}  // namespace

size_t environment_value(const char* name, size_t fallback) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

DeviceMemory& DeviceMemory::instance() {
  // never destroyed: tensors outlive static objects
  static auto* const memory = new DeviceMemory();
  return *memory;
}

DeviceMemory::DeviceMemory()
    : limit_(environment_value("PRETEND_ACCELERATOR_BYTES", size_t{16} << 30)) {
  const int file = ::memfd_create("pretend_accelerator", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ::ftruncate(file, kAddresses) == 0, "no file for the device's memory");
  const auto map = [&](int rights) {
    void* const begin = ::mmap(nullptr, kAddresses, rights, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(begin != MAP_FAILED, "no addresses for the device's memory");
    return static_cast<char*>(begin);
  };
  protected_ = map(PROT_NONE);
  accessible_ = map(PROT_READ | PROT_WRITE);
  ::close(file);
  holes_.emplace(0, kAddresses);
}

void DeviceMemory::poison(size_t first, size_t bytes) const {
  std::memset(accessible_ + first, kNan, bytes);
}

void* DeviceMemory::take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t size = (bytes + kRounding - 1) / kRounding * kRounding;
  if (static_cast<size_t>(stats_.allocated_bytes[0].current) + size > limit_) {
    ++stats_.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "pretend accelerator out of memory. Tried to allocate ", bytes, " bytes; ",
                     stats_.allocated_bytes[0].current, " of ", limit_, " are in use");
  }
  const auto hole =
      std::ranges::find_if(holes_, [&](const auto& one) { return one.second >= size; });
  TORCH_CHECK(hole != holes_.end(), "no addresses left");
  const size_t first = hole->first;
  if (hole->second > size) holes_.emplace(first + size, hole->second - size);
  holes_.erase(hole);
  blocks_.emplace(first, size);
  stats_.allocated_bytes[0].increase(size);
  stats_.reserved_bytes[0].increase(size);
  ++stats_.num_device_alloc;
  if (first + size > used_before_) {  // other memory was poisoned when it was freed
    const size_t fresh = std::max(first, used_before_);
    poison(fresh, first + size - fresh);
    used_before_ = first + size;
  }
  return protected_ + first;
}

void DeviceMemory::give_back(void* pointer) {
  LateCopies::instance().give_back(pointer);
  const std::lock_guard lock(mutex_);
  if (!contains(pointer)) return;
  const auto block = blocks_.find(static_cast<size_t>(static_cast<char*>(pointer) - protected_));
  if (block == blocks_.end()) return;
  const auto [first, size] = *block;
  blocks_.erase(block);
  stats_.allocated_bytes[0].decrease(size);
  stats_.reserved_bytes[0].decrease(size);
  poison(first, size);
  add_hole(first, size);
}

void DeviceMemory::add_hole(size_t first, size_t bytes) {
  auto next = holes_.lower_bound(first);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      bytes += before->second;
      holes_.erase(before);
    }
  }
  if (next != holes_.end() && first + bytes == next->first) {
    bytes += next->second;
    holes_.erase(next);
  }
  holes_.emplace(first, bytes);
}

bool DeviceMemory::contains(const void* pointer) const {
  return pointer >= protected_ && pointer < protected_ + kAddresses;
}

const void* DeviceMemory::block_of(const void* pointer) {
  if (!contains(pointer)) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<const char*>(pointer) - protected_);
  const auto after = blocks_.upper_bound(offset);
  return after == blocks_.begin() ? nullptr : protected_ + std::prev(after)->first;
}

char* DeviceMemory::accessible(const void* pointer) const {
  return accessible_ + (static_cast<const char*>(pointer) - protected_);
}

bool DeviceMemory::is_accessible(const void* pointer) const {
  return pointer >= accessible_ && pointer < accessible_ + kAddresses;
}

c10::CachingDeviceAllocator::DeviceStats DeviceMemory::stats() {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void DeviceMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.allocated_bytes[0].reset_peak();
}

namespace {

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const pointer = bytes == 0 ? nullptr : DeviceMemory::instance().take(bytes);
    return {pointer, pointer, &release, c10::Device(kDeviceType, 0)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const DeviceMemory& memory = DeviceMemory::instance();
    std::memcpy(memory.accessible(to), memory.accessible(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    return DeviceMemory::instance().stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {
    DeviceMemory::instance().reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    DeviceMemory& memory = DeviceMemory::instance();
    const auto used = static_cast<size_t>(memory.stats().allocated_bytes[0].current);
    return {memory.limit() - used, memory.limit()};
  }

 private:
  static void release(void* pointer) { DeviceMemory::instance().give_back(pointer); }
};

class PinnedAllocator final : public at::HostAllocator {
 public:
  static PinnedAllocator& instance() {
    static auto* const allocator = new PinnedAllocator();
    return *allocator;
  }

  at::DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (bytes > 0) TORCH_CHECK(::posix_memalign(&pointer, 64, bytes) == 0, "no pinned memory");
    const std::lock_guard lock(mutex_);
    blocks_.emplace(static_cast<char*>(pointer), bytes);
    return {pointer, pointer, &release, at::Device(at::kCPU)};
  }
  bool contains(const void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const char*>(pointer);
    auto after = blocks_.upper_bound(const_cast<char*>(at));
    if (after == blocks_.begin()) return false;
    --after;
    return at < after->first + after->second;
  }
  [[nodiscard]] at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  // Pending copies own their host tensor, so events need not.
  bool record_event(void* /*pointer*/, void* /*context*/, c10::Stream /*stream*/) override {
    return true;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static void release(void* pointer) {
    {
      const std::lock_guard lock(instance().mutex_);
      instance().blocks_.erase(static_cast<char*>(pointer));
    }
    std::free(pointer);
  }

  std::mutex mutex_;
  std::map<char*, size_t> blocks_;
};

Allocator allocator;
REGISTER_ALLOCATOR(kDeviceType, &allocator);

const bool has_pinned_memory =
    (at::setHostAllocator(kDeviceType, &PinnedAllocator::instance()), true);

}  // namespace

c10::DeviceAllocator& device_allocator() { return allocator; }
at::HostAllocator& pinned_allocator() { return PinnedAllocator::instance(); }
bool is_pinned(const void* pointer) { return PinnedAllocator::instance().contains(pointer); }

}  // namespace pretend
