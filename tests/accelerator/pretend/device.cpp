// SPDX-License-Identifier: MIT
// One device per process with streams that run in order, and the signal handler for a host that
// touches device memory.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "counts.h"
#include "faults.h"
#include "late_copies.h"
#include "memory.h"

namespace pretend {
namespace {

thread_local c10::StreamId stream_of_thread = 0;

void* handle_of(c10::StreamId stream) {
  static std::array<char, kStreams> handles;
  return &handles.at(static_cast<size_t>(stream));
}

size_t index_of(const c10::Stream& stream) { return static_cast<size_t>(stream.id()); }

void wait_for_device() {
  maybe_fail("synchronize");
  LateCopies::instance().finish();
  Counts::instance().add_wait("synchronize");
}

void wait_for(const Clock& clock) {
  maybe_fail("synchronize");
  LateCopies::instance().finish(clock);
  Counts::instance().add_wait("synchronize");
}

// PRETEND_ACCELERATOR_IGNORE names what has no effect, so that tests can plant faults into the
// program: "block" (a stream that waits for an event) or "synchronize" (a host that does).
bool is_ignored(const char* name) {
  const char* const ignored = std::getenv("PRETEND_ACCELERATOR_IGNORE");
  return ignored != nullptr && std::string_view(ignored) == name;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = kDeviceType;
  Guard() = default;
  explicit Guard(c10::DeviceType /*type*/) {}

  c10::DeviceType type() const override { return kDeviceType; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device getDevice() const override { return c10::Device(kDeviceType, 0); }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return getDevice();
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() <= 0, "there is one device, not ", device);
  }
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override { return {}; }

  c10::Stream getStream(c10::Device /*device*/) const override { return stream(stream_of_thread); }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return handle_of(stream.id());
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device /*device*/, bool /*high*/) const override {
    static std::atomic<size_t> next = 0;
    return stream(static_cast<c10::StreamId>(1 + next++ % (kStreams - 1)));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    stream_of_thread = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    LateCopies& late = LateCopies::instance();
    late.finish(late.clock_of(index_of(stream)));
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for(LateCopies::instance().clock_of(index_of(stream)));
  }
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override { wait_for_device(); }

  // An event is a clock.
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Clock();
    *static_cast<Clock*>(*event) = LateCopies::instance().clock_of(index_of(stream));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Clock*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (is_ignored("block")) return;
    LateCopies::instance().block(index_of(stream), *static_cast<Clock*>(event));
  }
  bool queryEvent(void* event) const override {
    LateCopies::instance().finish(*static_cast<Clock*>(event));
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (!is_ignored("synchronize")) wait_for(*static_cast<Clock*>(event));
  }

 private:
  [[nodiscard]] c10::Stream stream(c10::StreamId id) const {
    return c10::Stream(c10::Stream::UNSAFE, getDevice(), id);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex /*device*/) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override { return 0; }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Device getDeviceFromPtr(void* /*pointer*/) const override { return {kDeviceType, 0}; }
};

const bool has_hooks = [] {
  c10::register_privateuse1_backend("pretend");  // torch needs a name
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

struct sigaction previous_action = {};

void on_segmentation_fault(int signal, siginfo_t* info, void* context) {
  if (!DeviceMemory::instance().contains(info->si_addr)) {
    if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
      previous_action.sa_sigaction(signal, info, context);
    } else {
      ::signal(SIGSEGV, SIG_DFL);
    }
    return;
  }
  constexpr char kText[] = "pretend accelerator: the host touched device memory\n";
  (void)!::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  std::array<void*, 48> frames = {};
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
  ::signal(SIGSEGV, SIG_DFL);
  ::raise(SIGSEGV);
}

const bool watches_faults = [] {
  struct sigaction action = {};
  action.sa_sigaction = &on_segmentation_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &previous_action);
  return true;
}();

}  // namespace

size_t current_stream() { return static_cast<size_t>(stream_of_thread); }

}  // namespace pretend

extern "C" __attribute__((visibility("default"))) void* pretend_current_stream() {
  return pretend::handle_of(pretend::stream_of_thread);
}
