// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "finetune/tensor/host_pages.h"
#include "finetune/tensor/lazy_tensor.h"

namespace finetune {

// Tensors as they are at one moment, for a writer that runs concurrently with training. Weights and
// optimizer states do not change between two updates, so the writer reads them in place; only what
// the next update would change too early is copied (lazy copies, DataStates-LLM, HPDC 2024).
//
// One thread takes and detaches, another may read the lazy tensors meanwhile. They stay valid after
// the snapshot is destroyed.
class Snapshot {
 public:
  Snapshot();
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // The tensor's values of now, whatever happens to it after detach(). Requires: not detached.
  [[nodiscard]] LazyTensor hold(std::string name, const Tensor& live);
  [[nodiscard]] uint64_t bytes() const;  // of all that is held

  // From here on the held tensors may change: every one is copied to the host. False where there is
  // no memory for that: then nothing has happened, and they may not change before the last reader
  // is done.
  [[nodiscard]] bool detach();
  // The same into memory that was taken before. Requires: bytes() of it, used by nobody else.
  [[nodiscard]] bool detach(std::shared_ptr<HostPages> memory);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// Held where there is a snapshot, else as it is when it is written.
[[nodiscard]] LazyTensor lazy_or_held(Snapshot* snapshot, std::string name, const Tensor& tensor);

}  // namespace finetune
