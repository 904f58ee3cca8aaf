// SPDX-License-Identifier: MIT
#include "finetune/tensor/device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string_view>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/base/memory_status.h"
#include "finetune/base/text.h"
#include "finetune/tensor/gpu.h"
#include "finetune/tensor/tensor.h"
#include "finetune/tensor/tpu.h"

namespace finetune {
namespace {

bool has_accelerator() {
  return at::getAccelerator().has_value() && at::accelerator::deviceCount() > 0;
}

// Returns a function of a library that torch loaded at run time (the driver's) or, by default, is
// linked to; null if there is none.
template <typename Function>
Function loaded_function(const char* name, const char* library = nullptr) {
  void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  void* const found = ::dlsym(handle != nullptr ? handle : RTLD_DEFAULT, name);
  if (handle != nullptr) ::dlclose(handle);
  return reinterpret_cast<Function>(found);
}

constexpr char kDriver[] = "libcuda.so.1";

// Returns the driver's handle of a device.
std::optional<int> driver_handle(const c10::Device& device) {
  const auto get = loaded_function<int (*)(int*, int)>("cuDeviceGet", kDriver);
  int handle = 0;
  if (device.is_cpu() || get == nullptr || get(&handle, device.index()) != 0) return std::nullopt;
  return handle;
}

// Returns "NVIDIA A100-SXM4-40GB"; for other accelerators the device type.
std::string device_name(const c10::Device& device) {
  const auto get_name = loaded_function<int (*)(char*, int, int)>("cuDeviceGetName", kDriver);
  const std::optional<int> handle = driver_handle(device);
  std::array<char, 256> name = {};
  const bool known = handle && get_name != nullptr &&
                     get_name(name.data(), static_cast<int>(name.size()) - 1, *handle) == 0;
  return known ? name.data() : c10::DeviceTypeName(device.type(), true);
}

std::string dotted(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// Returns "13.0", or an empty string.
std::string cuda_version() {
  const auto get = loaded_function<int (*)(int*)>("cudaRuntimeGetVersion");
  int version = 0;  // 13000
  if (get == nullptr || get(&version) != 0) return "";
  return dotted(version / 1000, version % 1000 / 10);
}

// NVRTC is loaded lazily; torch's own module for it finds the version in torch's packages.
std::string nvrtc_version() {
  void* const module = ::dlopen("libcaffe2_nvrtc.so", RTLD_LAZY | RTLD_LOCAL);
  const auto get = reinterpret_cast<int (*)(int*, int*)>(
      ::dlsym(module != nullptr ? module : RTLD_DEFAULT, "nvrtcVersion"));
  int major = 0;
  int minor = 0;
  const bool known = get != nullptr && get(&major, &minor) == 0;
  return known ? dotted(major, minor) : "";
}

std::string gibibytes_of(int64_t bytes) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.2f GiB",
                static_cast<double>(bytes) / static_cast<double>(1 << 30));
  return text.data();
}

constexpr char kAllocatorSettings[] = "PYTORCH_ALLOC_CONF";
constexpr char kExpandable[] = "expandable_segments:True";

// A virtual GPU may refuse the mapping that expandable segments need, at the first allocation.
void check_expandable_segments(const c10::Device& device) {
  static std::once_flag once;
  std::call_once(once, [&device] {
    try {
      (void)at::empty({1}, at::TensorOptions(device));
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      c10::CachingAllocator::setAllocatorSettings("expandable_segments:False");
      (void)at::empty({1}, at::TensorOptions(device));  // the same error again is of another kind
      log::warning(format_text(
          "this GPU refuses expandable segments of memory ({}): memory may be fragmented, and a "
          "batch that needs nearly all of it may be split",
          error.what_without_backtrace()));
    }
  });
}

}  // namespace

DeviceFeatures features_of(const c10::Device& device) {
  const bool has_all = !device.is_cpu() && !device.is_meta() && !is_tpu(device);
  return {.streams = has_all, .pinned = has_all, .statistics = has_all};
}

bool compiles_shapes(const c10::Device& device) { return is_tpu(device); }

at::TensorOptions host_options(at::ScalarType type, const c10::Device& device) {
  return at::TensorOptions().dtype(type).device(at::kCPU).pinned_memory(features_of(device).pinned);
}

c10::Device pick_device(Accelerator wanted) {
  // Set before CUDA's allocator reads it: expandable segments avoid fragmentation by batches of
  // different lengths. A user's setting takes precedence.
  const bool is_ours = std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr &&
                       std::getenv(kAllocatorSettings) == nullptr;
  if (is_ours) ::setenv(kAllocatorSettings, kExpandable, /*overwrite=*/0);
  if (wanted == Accelerator::kCpu) return c10::Device(c10::kCPU);
  if (wanted == Accelerator::kTpu && !has_tpu()) {
    throw Error(ErrorKind::kConfig,
                "accelerator: tpu: this machine has no TPU: none of Google's chips is on its PCI "
                "bus, and TPU_LIBRARY_PATH names no library; take a TPU VM (in Colab: Runtime, "
                "Change runtime type), or set accelerator: auto");
  }
  if (takes_tpu(wanted)) {
    load_tpu();
    return {c10::kPrivateUse1, 0};
  }
  if (!has_accelerator() || (wanted == Accelerator::kCuda && *at::getAccelerator() != at::kCUDA)) {
    if (wanted == Accelerator::kAuto) return c10::Device(c10::kCPU);
    throw Error(
        ErrorKind::kConfig,
        format_text("accelerator: cuda: torch {} sees no NVIDIA GPU; `finetune doctor` says "
                    "why, and accelerator: auto takes what is there",
                    torch_version()));
  }
  const c10::Device device(*at::getAccelerator(), 0);
  if (is_ours) check_expandable_segments(device);
  return device;
}

c10::Device pick_prediction_device(bool use_cpu) {
  return pick_device(use_cpu || has_tpu() ? Accelerator::kCpu : Accelerator::kAuto);
}

std::string describe_device(const c10::Device& device) {
  if (device.is_cpu()) {
    const int64_t threads = num_threads();
    return "CPU, " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
           cpu_capability();
  }
  if (is_tpu(device)) return describe_tpu(device);
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  char memory[32];
  std::snprintf(memory, sizeof(memory), "%.1f GiB",
                static_cast<double>(total) / static_cast<double>(1 << 30));
  return device_name(device) + " (" + device.str() + " of " +
         std::to_string(at::accelerator::deviceCount()) + ", " + memory + ")";
}

std::optional<GpuProperties> gpu_properties(const c10::Device& device) {
  // CUdevice_attribute, cuda.h: these numbers are stable.
  enum Attribute { kMultiprocessors = 16, kMajor = 75, kMinor = 76 };
  const auto get = loaded_function<int (*)(int*, int, int)>("cuDeviceGetAttribute", kDriver);
  const std::optional<int> handle = driver_handle(device);
  if (!handle || get == nullptr) return std::nullopt;
  GpuProperties properties;
  if (get(&properties.major, kMajor, *handle) != 0) return std::nullopt;
  if (get(&properties.minor, kMinor, *handle) != 0) return std::nullopt;
  if (get(&properties.multiprocessors, kMultiprocessors, *handle) != 0) return std::nullopt;
  return properties;
}

std::string gpu_environment(const c10::Device& device) {
  const std::optional<GpuProperties> gpu = gpu_properties(device);
  if (!gpu) return "";
  std::string text = "compute capability " + dotted(gpu->major, gpu->minor) + ", " +
                     std::to_string(gpu->multiprocessors) + " multiprocessors";
  if (const std::string version = cuda_version(); !version.empty()) text += ", CUDA " + version;
  if (const std::string version = nvrtc_version(); !version.empty()) text += ", NVRTC " + version;
  return text;
}

void set_device_arithmetic(const c10::Device& device, bool tf32, bool deterministic) {
  if (device.is_cpu()) return;
  at::Context& torch = at::globalContext();
  torch.setFloat32MatmulPrecision(tf32 ? "high" : "highest");
  if (!deterministic) return;
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // recommended by cuBLAS
  torch.setDeterministicAlgorithms(true, /*warn_only=*/false);
  torch.setDeterministicFillUninitializedMemory(false);  // no code here reads uninitialised memory
}

int64_t product_workspace_bytes(const c10::Device& device) {
  constexpr int64_t kThreads = 2;
  constexpr int64_t kKiB = 1024;
  const std::optional<GpuProperties> gpu = gpu_properties(device);
  if (!gpu) return 0;
  // CUDAContext's getChosenWorkspaceSize(): ":4096:8" from compute capability 9.0 on, and where it
  // is asked for; else ":4096:2:16:8".
  const char* const asked = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  const bool is_large =
      gpu->major >= 9 || (asked != nullptr && std::string_view(asked) == ":4096:8");
  return kThreads * kKiB * (is_large ? 4096 * 8 : 4096 * 2 + 16 * 8);
}

void warm_up(const c10::Device& device) {
  if (device.is_cpu()) return;
  const Tensor x = at::ones({8, 8}, at::TensorOptions(device)).requires_grad_();
  at::mm(x, x).sum().backward();
}

std::string describe_device_memory(const c10::Device& device) {
  if (!features_of(device).statistics) return "";
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto& reserved = stats.reserved_bytes[aggregate];
  const int64_t elsewhere = std::max<int64_t>(
      0, static_cast<int64_t>(total) - static_cast<int64_t>(free) - reserved.current);
  return "at most " + gibibytes_of(stats.allocated_bytes[aggregate].peak) + " allocated and " +
         gibibytes_of(reserved.peak) + " reserved by this process, " + gibibytes_of(elsewhere) +
         " by the driver and other processes, of " + gibibytes_of(static_cast<int64_t>(total));
}

std::string_view lost_device(const std::exception& error) {
  // cudaGetErrorString() of persistent errors (CUDA's runtime API, cudaError_t).
  constexpr std::array<std::string_view, 11> kLasting = {
      "an illegal memory access was encountered",
      "an illegal instruction was encountered",
      "misaligned address",
      "invalid program counter",
      "hardware stack error",
      "operation not supported on global/shared address space",
      "unspecified launch failure",
      "the launch timed out and was terminated",
      "uncorrectable ECC error encountered",
      "uncorrectable NVLink error detected during the execution",
      "unknown error"};
  // TorchTPU's, of a program that failed, and of operators on what it should have computed.
  constexpr std::array<std::string_view, 2> kFailedPrograms = {
      "failed to run executable", "a required argument is in a failed state"};
  const std::string_view text = error.what();
  const auto has = [&](std::string_view sign) { return text.find(sign) != std::string_view::npos; };
  if (std::ranges::any_of(kFailedPrograms, has)) return "TPU";
  return has("CUDA") && std::ranges::any_of(kLasting, has) ? "GPU" : "";
}

std::string cpu_capability() { return at::get_cpu_capability(); }

int num_threads() { return at::get_num_threads(); }
void set_num_threads(int threads) { at::set_num_threads(threads); }

void choose_vector_math() { (void)at::sin(at::ones({1})); }

void synchronize(const c10::Device& device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

uint64_t peak_memory_bytes(const c10::Device& device) {
  if (device.is_cpu()) return static_cast<uint64_t>(peak_resident_memory());
  if (!features_of(device).statistics) return 0;
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<uint64_t>(stats.allocated_bytes[aggregate].peak);
}

uint64_t free_memory(const c10::Device& device) {
  if (!features_of(device).statistics) return total_memory(device);
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const int64_t unused =
      stats.reserved_bytes[aggregate].current - stats.allocated_bytes[aggregate].current;
  return free + static_cast<uint64_t>(std::max<int64_t>(0, unused));
}

uint64_t total_memory(const c10::Device& device) {
  if (is_tpu(device)) return static_cast<uint64_t>(tpu_memory());
  return at::accelerator::getMemoryInfo(device.index()).second;
}

void release_startup_code() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream fields(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string permissions;
    if (!(fields >> std::hex >> begin >> dash >> end >> permissions)) continue;
    // Read-only code of a file: it can be read again, so dropping it loses nothing.
    if (permissions != "r-xp" || line.find('/') == std::string::npos) continue;
    void* const code = reinterpret_cast<void*>(begin);  // NOLINT: /proc names addresses
    ::madvise(code, end - begin, MADV_DONTNEED);
  }
}

}  // namespace finetune
