// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"
#include "kernels/cuda/device/arguments.h"
#include "kernels/cuda/runner.h"

// Starts kernels for the operations of this folder.
namespace finetune::kernels::cuda {

// Declares a type for each kernel of device/kernels.def, with the structure of its arguments.
namespace kernel {
#define FINETUNE_CUDA_KERNEL(source, kernel, ArgumentsOfKernel, types, variants) \
  struct kernel {                                                                \
    using Arguments = ArgumentsOfKernel;                                         \
    static constexpr const char* kName = #kernel;                                \
  };
#include "kernels/cuda/device/kernels.def"
}  // namespace kernel

[[nodiscard]] ValueType value_type_of(const Tensor& x);

// Blocks in each dimension, and threads of a block.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int threads = kThreads;
};

// One launch on the current stream of a tensor's device. reads(), writes() and changes() return the
// addresses of tensors, which must live until the launch, and count their bytes.
class Launch {
 public:
  // On the meta device nothing is launched: a dry run.
  explicit Launch(const Tensor& on) : launch_{.device = on.get_device()}, is_dry_(on.is_meta()) {}

  // Returns the address of a contiguous tensor; null if it is undefined.
  template <typename T = void>
  const T* reads(const Tensor& x) {
    if (x.defined()) launch_.bytes_read += bytes_of(x);
    return static_cast<const T*>(address_of(x));
  }
  template <typename T = void>
  T* writes(const Tensor& x) {
    if (x.defined()) launch_.bytes_written += bytes_of(x);
    return static_cast<T*>(address_of(x));
  }
  template <typename T = void>
  T* changes(const Tensor& x) {
    (void)reads(x);
    return writes<T>(x);
  }

  // Returns the address of a tensor of which `bytes` are read.
  template <typename T>
  const T* address(const Tensor& x, int64_t bytes) {
    launch_.bytes_read += bytes;
    return static_cast<const T*>(address_of(x));
  }

  // Does nothing if the grid is empty.
  template <typename Kernel>
  void run(ValueType type, int variant, const Grid& grid,
           const typename Kernel::Arguments& arguments) {
    launch_.kernel = Kernel::kName;
    start(type, variant, grid, &arguments);
  }

 private:
  static int64_t bytes_of(const Tensor& x) {
    return x.numel() * static_cast<int64_t>(x.element_size());
  }
  static void* address_of(const Tensor& x);
  void start(ValueType type, int variant, const Grid& grid, const void* arguments);

  KernelLaunch launch_;
  bool is_dry_;
};

// Whether rows of this many columns in these tensors can be accessed `values` at a time, up to 16
// bytes by one instruction.
[[nodiscard]] bool is_aligned(int64_t columns, std::initializer_list<Tensor> tensors,
                              int64_t values = 4);

// Copies `entries` to the device's memory without waiting.
template <typename Entry>
[[nodiscard]] Tensor on_device(const std::vector<Entry>& entries, const Tensor& like);
[[nodiscard]] Tensor bytes_on_device(const void* bytes, size_t count, const Tensor& like);

template <typename Entry>
Tensor on_device(const std::vector<Entry>& entries, const Tensor& like) {
  return bytes_on_device(entries.data(), entries.size() * sizeof(Entry), like);
}

}  // namespace finetune::kernels::cuda
