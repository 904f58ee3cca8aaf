// SPDX-License-Identifier: MIT
#include "kernels/cuda/launch.h"

#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "finetune/base/error.h"

namespace finetune::kernels::cuda {
namespace {

std::atomic<const Runner*> current = nullptr;

}  // namespace

const Runner* preloaded_runner() {
  static const Runner* const runner = []() -> const Runner* {
    void* const function = ::dlsym(RTLD_DEFAULT, "finetune_cuda_runner");
    using Find = const Runner*(const Runner* (*)());
    return function == nullptr ? nullptr : reinterpret_cast<Find*>(function)(&driver_runner);
  }();
  return runner;
}

void set_runner(const Runner* runner) { current = runner; }

const Runner& current_runner() {
  const Runner* const runner = current;
  FT_CHECK(runner != nullptr, "kernels_for() has found who launches");
  return *runner;
}

ValueType value_type_of(const Tensor& x) {
  if (x.scalar_type() == at::kBFloat16) return ValueType::kBFloat16;
  if (x.scalar_type() == at::kHalf) return ValueType::kFloat16;
  FT_CHECK(x.scalar_type() == at::kFloat, "float32, bfloat16 or float16");
  return ValueType::kFloat32;
}

void* Launch::address_of(const Tensor& x) {
  if (!x.defined() || x.numel() == 0) return nullptr;
  FT_CHECK(x.is_contiguous(), "kernels take contiguous tensors");
  if (x.is_meta()) return nullptr;
  return current_runner().address(x.const_data_ptr());
}

void Launch::start(ValueType type, int variant, const Grid& grid, const void* arguments) {
  if (is_dry_ || grid.x == 0 || grid.y == 0) return;
  launch_.type = type;
  launch_.variant = variant;
  launch_.blocks_x = grid.x;
  launch_.blocks_y = grid.y;
  launch_.threads = grid.threads;
  launch_.arguments = arguments;
  current_runner().launch(launch_);
}

bool is_aligned(int64_t columns, std::initializer_list<Tensor> tensors, int64_t values) {
  if (columns % values != 0) return false;
  for (const Tensor& x : tensors) {
    if (!x.defined() || x.is_meta()) continue;
    const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
    const int64_t bytes = std::min<int64_t>(16, values * x.element_size());
    if (address % static_cast<uintptr_t>(bytes) != 0) return false;
  }
  return true;
}

Tensor bytes_on_device(const void* bytes, size_t count, const Tensor& like) {
  if (like.is_meta())
    return at::empty({static_cast<int64_t>(count)}, like.options().dtype(at::kByte));
  const auto pinned = at::TensorOptions().dtype(at::kByte).pinned_memory(!current_runner().is_host);
  const Tensor host = at::empty({static_cast<int64_t>(count)}, pinned);
  std::memcpy(host.mutable_data_ptr(), bytes, count);
  return host.to(like.device(), /*non_blocking=*/true);
}

}  // namespace finetune::kernels::cuda
