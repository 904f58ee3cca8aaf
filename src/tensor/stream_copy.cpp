// SPDX-License-Identifier: MIT
#include "finetune/tensor/stream_copy.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "finetune/base/log.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

constexpr int64_t kBufferBytes = int64_t{4} << 20;

c10::Stream new_stream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return features_of(device).streams ? guard.getStreamFromGlobalPool(device)
                                     : guard.getStream(device);
}

// The stream of a device's StreamCopies: one, so that they follow each other.
c10::Stream copy_stream(c10::Device device) {
  static std::mutex mutex;
  static auto& streams =
      *new std::map<c10::Device, c10::Stream, bool (*)(c10::Device, c10::Device)>(
          [](c10::Device a, c10::Device b) { return a.index() < b.index(); });
  const std::lock_guard lock(mutex);
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, new_stream(device)).first->second;
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

StreamCopy::StreamCopy(Tensor source, Tensor target, c10::Device device)
    : source_(std::move(source)),
      target_(std::move(target)),
      device_(device),
      done_(device.type()) {
  const c10::Stream stream = copy_stream(device_);
  c10::Event ready(device_.type());
  ready.record(current_stream(device_));
  ready.block(stream);
  const c10::StreamGuard guard(stream);
  target_.copy_(source_, /*non_blocking=*/features_of(device_).pinned);
  done_.record(stream);
}

StreamCopy StreamCopy::to_host(const Tensor& x) {
  return {x, at::empty(x.sizes(), host_options(x.scalar_type(), x.device())), x.device()};
}

StreamCopy StreamCopy::to_device(const Tensor& host, c10::Device device) {
  return {host, at::empty(host.sizes(), host.options().device(device).pinned_memory(false)),
          device};
}

// A copy that nobody took, because of an exception: the allocator may give its memory to kernels.
StreamCopy::~StreamCopy() {
  if (!target_.defined()) return;
  try {
    done_.block(current_stream(device_));
  } catch (const std::exception& error) {  // a lost GPU
    log::debug(std::string("a copy was not waited for: ") + error.what());
  }
}

Tensor StreamCopy::take() {
  done_.block(current_stream(device_));
  source_ = Tensor();
  return std::exchange(target_, {});
}

StagedReader::StagedReader(c10::Device device)
    : stream_(new_stream(device)),
      ready_(device.type()),
      buffers_{Buffer(device.type()), Buffer(device.type())} {}

void StagedReader::mark() { ready_.record(current_stream(stream_.device())); }

void StagedReader::empty(Buffer& buffer) {
  if (buffer.target == nullptr) return;
  buffer.filled.synchronize();
  std::memcpy(std::exchange(buffer.target, nullptr), buffer.memory.const_data_ptr(), buffer.bytes);
}

void StagedReader::read(const std::vector<Part>& parts) {
  const c10::StreamGuard guard(stream_);
  ready_.block(stream_);
  for (Buffer& buffer : buffers_) {
    buffer.target = nullptr;  // of a read that failed
    if (!buffer.memory.defined())
      buffer.memory = at::empty({kBufferBytes}, host_options(at::kByte, stream_.device()));
  }
  const bool is_pinned = features_of(stream_.device()).pinned;
  size_t next = 0;
  for (const Part& part : parts) {
    const Tensor bytes = part.source.detach().view({-1}).view(at::kByte);
    for (int64_t first = 0; first < bytes.numel(); first += kBufferBytes) {
      const int64_t count = std::min(kBufferBytes, bytes.numel() - first);
      Buffer& buffer = buffers_.at(next++ % buffers_.size());
      empty(buffer);
      buffer.memory.narrow(0, 0, count)
          .copy_(bytes.narrow(0, first, count), /*non_blocking=*/is_pinned);
      buffer.filled.record(stream_);
      buffer.target = part.target + first;
      buffer.bytes = static_cast<size_t>(count);
    }
  }
  for (size_t i = 0; i < buffers_.size(); ++i) empty(buffers_.at(next++ % buffers_.size()));
}

}  // namespace finetune
