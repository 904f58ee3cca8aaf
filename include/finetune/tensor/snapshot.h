// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "finetune/tensor/host_pages.h"
#include "finetune/tensor/lazy_tensor.h"

namespace finetune {

// Tensors as they are at one moment, for a writer that runs concurrently with training. Weights and
// optimizer states do not change between two updates, so the writer reads them in place; only
// tensors that it has not read before the next update are copied (lazy copies, DataStates-LLM, HPDC
// 2024).
//
// One thread calls hold() and detach(); another may read the lazy tensors meanwhile. These stay
// valid after the snapshot is destroyed.
class Snapshot {
 public:
  Snapshot();
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Returns a lazy tensor with the current values of `live`, also after detach(). Requires: not
  // detached.
  [[nodiscard]] LazyTensor hold(std::string name, const Tensor& live);
  [[nodiscard]] uint64_t bytes() const;  // of all held tensors

  // Allows the held tensors to change: copies them on their device, in a thousandth of the time
  // that it takes to the host, and readers read the copies. Returns false, and nothing was copied,
  // if none is on a device, or if less than a tenth of the device's memory would stay free.
  [[nodiscard]] bool detach_on_device();
  // Allows the held tensors to change: copies each to the host first. Returns false if memory is
  // insufficient; then nothing was copied, and the tensors must not change before the last reader
  // is done.
  [[nodiscard]] bool detach();
  // The same, into existing memory. Requires: bytes() of it, not otherwise in use.
  [[nodiscard]] bool detach(std::shared_ptr<HostPages> memory);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// Returns snapshot->hold(), or without a snapshot a tensor whose values are read when it is
// written.
[[nodiscard]] LazyTensor lazy_or_held(Snapshot* snapshot, std::string name, const Tensor& tensor);

}  // namespace finetune
