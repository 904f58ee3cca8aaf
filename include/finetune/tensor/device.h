// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <string>

namespace finetune {

enum class Accelerator { kAuto, kCpu, kCuda, kTpu };

// Selects the device; no other code does. kAuto: a TPU where there is one, else torch's accelerator
// (CUDA, ...), else the CPU. Throws Error(kConfig) with what was looked for where the one that was
// asked for is not there.
[[nodiscard]] c10::Device pick_device(Accelerator wanted);
// For predictions, whose texts have any length: not a TPU, which would compile each of them.
[[nodiscard]] c10::Device pick_prediction_device(bool use_cpu);

// What a device offers beyond operators and copies. A CPU offers none of these, a TPU neither.
struct DeviceFeatures {
  bool streams = false;     // more than the current one
  bool pinned = false;      // host memory that it copies to and from by itself
  bool statistics = false;  // of its memory: free bytes, its allocator's peak
};
[[nodiscard]] DeviceFeatures features_of(const c10::Device& device);
// Whether operators are compiled for shapes: fewer shapes, less time.
[[nodiscard]] bool compiles_shapes(const c10::Device& device);

// Options of a tensor in host memory from which and to which the device copies fastest.
[[nodiscard]] at::TensorOptions host_options(at::ScalarType type, const c10::Device& device);

// Returns "CPU, 2 threads, AVX2" or "Tesla T4 (cuda:0 of 1, 14.7 GiB)".
[[nodiscard]] std::string describe_device(const c10::Device& device);
// Returns "2.13.0+cpu".
[[nodiscard]] std::string torch_version();
// Returns the instruction set of torch's kernels on this machine ("AVX512"); exact bits depend on
// it.
[[nodiscard]] std::string cpu_capability();

[[nodiscard]] int num_threads();
void set_num_threads(int threads);

// Lets MKL's vector math choose the instructions of this CPU. It does so in the first call without
// a lock: a second thread that calls it in that moment may compute with another CPU's code, and so
// other bits. Call it before there are threads that compute.
void choose_vector_math();
void synchronize(const c10::Device& device);

// Returns the peak memory since the process started. CPU: resident memory less the currently
// resident mapped file pages beyond kMappedCode (memory_status.h). Accelerator: allocated memory.
[[nodiscard]] uint64_t peak_memory_bytes(const c10::Device& device);

// Bytes of an accelerator's memory that this process can still allocate, its allocator's unused
// ones included, and all bytes that it has. A TPU does not say the first: all of them; 0 if
// unknown.
[[nodiscard]] uint64_t free_memory(const c10::Device& device);
[[nodiscard]] uint64_t total_memory(const c10::Device& device);

// Sets the allocator's first phase: while a model is built, large blocks are mapped and unmapped,
// so that long-lived memory is separate from memory that every step allocates and frees.
void return_freed_memory();
// Sets the second phase, from the first step on: freed blocks are kept instead of being unmapped
// and faulted in again.
void keep_freed_memory();

// The second phase for a while within the first: for long work that allocates and frees pieces.
class KeptMemory {
 public:
  KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory();  // returns what was kept to the system

 private:
  bool was_kept_;
};

// Returns unused memory to the system or the device, so that a retry after OOM can allocate blocks
// of other sizes.
void release_unused_memory(const c10::Device& device);

// Returns the memory of code pages that ran at startup and are unlikely to run again, such as the
// registration of libtorch's operators: tens of MiB. Pages that are needed again are read from the
// file. Does nothing if the system does not report what is mapped.
void release_startup_code();

}  // namespace finetune
