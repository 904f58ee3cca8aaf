// SPDX-License-Identifier: MIT
// Runs kernels on NVIDIA's GPUs: NVRTC compiles them when they are first launched, and the driver's
// library, which torch has already loaded, loads and launches them.
#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "kernels/cuda/cubin_cache.h"
#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/runner.h"
#include "kernels/cuda/sources.h"

namespace finetune::kernels::cuda {
namespace {

// cuda.h: the part of the driver's interface that has been the same since CUDA 11.
struct DriverContext;
struct DriverModule;
struct DriverFunction;
using DriverResult = int;
constexpr DriverResult kOutOfMemory = 2;
constexpr int kMajorOfCapability = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinorOfCapability = 76;

std::string library_named(std::string_view part) {
  struct Search {
    std::string_view part;
    std::string found;
  } search{part, ""};
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        if (file_name(library->dlpi_name).find(wanted.part) == std::string::npos) return 0;
        wanted.found = library->dlpi_name;
        return 1;
      },
      &search);
  return search.found;
}

std::unique_ptr<Nvrtc> load_nvrtc() {
  const std::string cudart = library_named("libcudart.so");
  if (cudart.empty()) throw std::runtime_error("torch has loaded no libcudart");
  std::vector<std::string> paths = nvrtc_beside(cudart);
  // Also try a toolkit of the system, which the loader finds by name.
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) paths.emplace_back(name);
  std::string reason;
  for (const std::string& path : paths) {
    try {
      return std::make_unique<Nvrtc>(path);
    } catch (const std::runtime_error& error) {
      if (reason.empty()) reason = error.what();
    }
  }
  throw std::runtime_error(format_text(
      "NVRTC, which torch's CUDA packages contain, was not found beside {} ({})", cudart, reason));
}

class DriverRunner {
 public:
  // Throws std::runtime_error if kernels cannot be compiled and loaded.
  DriverRunner() : nvrtc_(load_nvrtc()), cache_(user_kernel_cache()) {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    find(get_error_string_, "cuGetErrorString");
    DriverResult (*initialize)(unsigned) = nullptr;
    find(initialize, "cuInit");
    check(initialize(0), "cuInit");
    find(get_device_, "cuDeviceGet");
    find(get_attribute_, "cuDeviceGetAttribute");
    find(retain_context_, "cuDevicePrimaryCtxRetain");
    find(set_context_, "cuCtxSetCurrent");
    find(load_module_, "cuModuleLoadData");
    find(get_function_, "cuModuleGetFunction");
    find(launch_, "cuLaunchKernel");
    // Compile and load one kernel, so that a compiler or driver that fails is found before
    // training.
    KernelLaunch first;
    first.kernel = "column_sums";
    first.device = static_cast<int>(at::accelerator::getDeviceIndex());
    (void)function_of(first);
    description_ =
        format_text("NVRTC {}, sm_{}", nvrtc_->version(), device_of(first.device).architecture);
  }

  [[nodiscard]] const std::string& description() const { return description_; }

  void launch(const KernelLaunch& wanted) {
    const std::lock_guard lock(mutex_);
    DriverFunction* const function = function_of(wanted);
    check(set_context_(device_of(wanted.device).context), "cuCtxSetCurrent");
    // The driver copies the arguments during the call.
    std::array<void*, 1> arguments = {const_cast<void*>(wanted.arguments)};
    void* const stream =
        at::accelerator::getCurrentStream(static_cast<c10::DeviceIndex>(wanted.device))
            .native_handle();
    check(launch_(function, static_cast<unsigned>(wanted.blocks_x),
                  static_cast<unsigned>(wanted.blocks_y), 1, static_cast<unsigned>(wanted.threads),
                  1, 1, 0, stream, arguments.data(), nullptr),
          wanted.kernel);
  }

 private:
  struct Gpu {
    DriverContext* context = nullptr;  // the context that torch uses
    int architecture = 0;
  };
  using Key = std::tuple<int, std::string_view, ValueType, int>;

  template <typename Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
  }

  void check(DriverResult result, const char* what) const {
    if (result == 0) return;
    const char* text = nullptr;
    (void)get_error_string_(result, &text);
    const std::string message =
        format_text("CUDA error: {} ({}, {})", text == nullptr ? "unknown" : text, result, what);
    TORCH_CHECK_WITH(OutOfMemoryError, result != kOutOfMemory, message);
    throw std::runtime_error(message);
  }

  // The driver loads code outside torch's allocator, which may hold all memory that is free.
  DriverResult load_code(DriverModule** module, const std::string& code) const {
    const DriverResult result = load_module_(module, code.c_str());
    if (result != kOutOfMemory) return result;
    at::accelerator::emptyCache();
    return load_module_(module, code.c_str());
  }

  const Gpu& device_of(int index) {
    const auto known = gpus_.find(index);
    if (known != gpus_.end()) return known->second;
    Gpu gpu;
    int device = 0;
    int major = 0;
    int minor = 0;
    check(get_device_(&device, index), "cuDeviceGet");
    check(get_attribute_(&major, kMajorOfCapability, device), "cuDeviceGetAttribute");
    check(get_attribute_(&minor, kMinorOfCapability, device), "cuDeviceGetAttribute");
    check(retain_context_(&gpu.context, device), "cuDevicePrimaryCtxRetain");
    gpu.architecture = 10 * major + minor;
    return gpus_.emplace(index, gpu).first->second;
  }

  DriverFunction* function_of(const KernelLaunch& wanted) {
    const ListedKernel& kernel = find_kernel(wanted.kernel);
    const Key key(wanted.device, kernel.name, wanted.type, wanted.variant);
    const auto known = functions_.find(key);
    if (known != functions_.end()) return known->second;
    const Gpu& gpu = device_of(wanted.device);
    check(set_context_(gpu.context), "cuCtxSetCurrent");
    DriverModule* const module = load(kernel, wanted, gpu.architecture);
    DriverFunction* function = nullptr;
    check(get_function_(&function, module, entry_name(kernel).c_str()), kernel.name);
    functions_.emplace(key, function);
    return function;
  }

  DriverModule* load(const ListedKernel& kernel, const KernelLaunch& wanted, int architecture) {
    const CompileTarget target = target_of(architecture, nvrtc_->architectures());
    std::vector<std::string> options = compile_options();
    options.push_back(target.option);
    const std::string program = program_of(kernel, wanted.type, wanted.variant);
    const std::string key = CubinCache::key_of(program, options, nvrtc_->version());
    DriverModule* module = nullptr;
    const std::optional<std::string> kept = cache_.find(key);
    if (kept) {
      const DriverResult result = load_code(&module, *kept);
      if (result == 0) return module;
      // Compiling it again would need as much.
      if (result == kOutOfMemory) check(result, kernel.name);
    }
    if (!has_compiled_) {
      has_compiled_ = true;
      log::info(
          format_text("compiling CUDA kernels for sm_{} with NVRTC {}, once: they are kept in {}",
                      architecture, nvrtc_->version(), cache_.folder()));
    }
    const Nvrtc::Result compiled =
        nvrtc_->compile(program, std::string(kernel.name) + ".cu", options, target.to_ptx);
    check(load_code(&module, compiled.code), kernel.name);
    cache_.keep(key, compiled.code);
    return module;
  }

  std::unique_ptr<Nvrtc> nvrtc_;
  CubinCache cache_;
  void* library_ = nullptr;
  DriverResult (*get_error_string_)(DriverResult, const char**) = nullptr;
  DriverResult (*get_device_)(int*, int) = nullptr;
  DriverResult (*get_attribute_)(int*, int, int) = nullptr;
  DriverResult (*retain_context_)(DriverContext**, int) = nullptr;
  DriverResult (*set_context_)(DriverContext*) = nullptr;
  DriverResult (*load_module_)(DriverModule**, const void*) = nullptr;
  DriverResult (*get_function_)(DriverFunction**, DriverModule*, const char*) = nullptr;
  DriverResult (*launch_)(DriverFunction*, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, unsigned, void*, void**, void**) = nullptr;
  std::mutex mutex_;  // autograd launches kernels from its own thread
  std::map<int, Gpu> gpus_;
  std::map<Key, DriverFunction*> functions_;
  std::string description_;  // "NVRTC 13.0, sm_90"
  bool has_compiled_ = false;
};

// Never destroyed, because the driver may be gone at exit.
DriverRunner* make_driver_runner() {
  const char* const wish = std::getenv("FINETUNE_CUDA_KERNELS");
  if (wish != nullptr && std::string_view(wish) == "0") {
    log::info("CUDA kernels are off (FINETUNE_CUDA_KERNELS=0): torch's operators compute instead");
    return nullptr;
  }
  try {
    return new DriverRunner();
  } catch (const std::exception& error) {
    log::warning(
        format_text("CUDA kernels cannot be used: {}. torch's operators compute instead, "
                    "with several times as many launches per update",
                    error.what()));
    return nullptr;
  }
}

DriverRunner* the_driver() {
  static DriverRunner* const runner = make_driver_runner();
  return runner;
}

}  // namespace

const std::string& driver_description() { return the_driver()->description(); }

const Runner* driver_runner() {
  static const Runner kRunner = {
      .address = [](const void* pointer) { return const_cast<void*>(pointer); },
      .launch = [](const KernelLaunch& launch) { the_driver()->launch(launch); }};
  return the_driver() == nullptr ? nullptr : &kRunner;
}

}  // namespace finetune::kernels::cuda
