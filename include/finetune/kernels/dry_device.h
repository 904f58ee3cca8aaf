// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

// Dry runs: an update on the meta device, which allocates what it would allocate on another device
// and computes nothing (tensor/meta_memory.h counts it).
namespace finetune::kernels {

// The tables of kernels, by name: a dry run may be of a device that is not present.
enum class KernelTable {
  kCpu,
  kPlain,  // an accelerator without compiled kernels
  kCuda,
};

// The device that the meta device stands for.
struct DryDevice {
  KernelTable table = KernelTable::kCpu;
  int64_t threads = 1;  // of the CPU's kernels
  // Of an accelerator with kernels: attention that keeps no scores, torch's and its own in tiles.
  bool has_flash = false;
  bool has_tiles = false;
  bool computes_all_tokens = false;  // to the end of the last layer, whatever is read
};

// While it exists, this thread's operations on the meta device are those of `device`. One at a
// time.
class DryRun {
 public:
  explicit DryRun(const DryDevice& device);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

 private:
  DryDevice device_;
};

// Values of a parameter that update_in_chunks() converts to float32 at a time.
[[nodiscard]] int64_t chunk_values(KernelTable table);

// The device of this thread's DryRun; without one, the CPU with one thread.
[[nodiscard]] const DryDevice& dry_device();

}  // namespace finetune::kernels
