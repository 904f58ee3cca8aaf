// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <vector>

#include "finetune/tensor/tensor.h"

// Copies between a device and the host on another stream than the kernels', so that both run at the
// same time.
namespace finetune {

// One copy between a device and pinned memory, in progress. The device's current stream is meant to
// be the stream that allocated its tensors.
class StreamCopy {
 public:
  // Starts to copy a device tensor into new pinned memory, after the work that the current stream
  // has. The copy owns the tensor, which must not change before take().
  [[nodiscard]] static StreamCopy to_host(const Tensor& x);
  // Starts to copy a pinned tensor, which may itself be the result of to_host(), into new memory of
  // the device.
  [[nodiscard]] static StreamCopy to_device(const Tensor& host, c10::Device device);

  StreamCopy(const StreamCopy&) = delete;
  StreamCopy(StreamCopy&&) noexcept = default;
  StreamCopy& operator=(const StreamCopy&) = delete;
  StreamCopy& operator=(StreamCopy&&) = delete;
  ~StreamCopy();

  // Orders the copy before later work of the current stream and returns the copied tensor. The host
  // does not wait: it must not read a tensor in host memory.
  [[nodiscard]] Tensor take();

 private:
  StreamCopy(Tensor source, Tensor target, c10::Device device);

  Tensor source_;
  Tensor target_;  // undefined after take()
  c10::Device device_;
  c10::Event done_;
};

// Reads the tensors of a device into any host memory, through two pinned buffers: the device fills
// one while the host empties the other. One thread at a time.
class StagedReader {
 public:
  explicit StagedReader(c10::Device device);

  // Orders the current stream's work so far before the reads from here on.
  void mark();

  struct Part {
    char* target = nullptr;
    Tensor source;  // contiguous
  };
  // Returns when all bytes are in their targets.
  void read(const std::vector<Part>& parts);

 private:
  struct Buffer {
    explicit Buffer(c10::DeviceType type) : filled(type) {}
    Tensor memory;  // pinned
    c10::Event filled;
    char* target = nullptr;  // of what is in the buffer or on its way; null: nothing
    size_t bytes = 0;
  };
  static void empty(Buffer& buffer);

  c10::Stream stream_;
  c10::Event ready_;
  std::array<Buffer, 2> buffers_;
};

}  // namespace finetune
