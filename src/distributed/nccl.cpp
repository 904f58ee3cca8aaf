// SPDX-License-Identifier: MIT
// Loads NCCL at run time, so that one binary serves the CPU and the CUDA builds of a torch version.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "distributed/await_work.h"
#include "distributed/device_group.h"
#include "distributed/nccl_module.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/distributed/membership.h"
#include "finetune/tensor/tpu.h"

namespace finetune {
namespace {

struct Loaded {
  const NcclModule* module = nullptr;
  std::string reason = {};  // why it is missing
};

// The module is next to the executable, both in the build folder and in a package.
std::string module_path() {
  std::array<char, 4096> path = {};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return join_path(parent_path(std::string(path.data(), length > 0 ? length : 0)),
                   "libfinetune_nccl.so");
}

std::string last_error() {
  const char* error = ::dlerror();
  return error == nullptr ? "no reason given" : error;
}

// Converts "2.29.7" to "2.29".
std::string minor_version(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

Loaded load_module() {
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD) == nullptr) {
    return {.reason = "no NCCL: this torch is a CPU build"};
  }
  const std::string path = module_path();
  if (::access(path.c_str(), F_OK) != 0) {
    return {.reason = std::string("this build has no NCCL: ") + FINETUNE_NO_NCCL};
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.reason = "NCCL could not be loaded: " + last_error()};
  auto* entry = reinterpret_cast<NcclModuleEntry*>(::dlsym(library, "finetune_nccl_module"));
  if (entry == nullptr) return {.reason = "NCCL could not be loaded: " + last_error()};
  static const NcclHost host = {.await_work = &await_work,
                                .debug = [](const std::string& text) { log::debug(text); }};
  const NcclModule* module = entry(&host);
  const std::string found = module->version();
  if (minor_version(found) != module->compiled_for) {
    return {.reason = "this build is for NCCL " + module->compiled_for + ", and torch has NCCL " +
                      found + "; build it for this torch with scripts/build"};
  }
  return {.module = module};
}

const Loaded& loaded() {
  static const Loaded result = load_module();
  return result;
}

}  // namespace

std::string nccl_version() { return loaded().module == nullptr ? "" : loaded().module->version(); }

std::string reason_against_nccl() { return loaded().reason; }

void set_nccl_environment(const std::string& interface) {
  if (loaded().module == nullptr) return;
  // Otherwise c10d's watchdog thread ends the process with a stack trace; here, the rank that waits
  // for a sum reports its errors, and the heartbeat detects dead ranks.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/1);
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/1);
  const auto unless_set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), /*overwrite=*/0);
  };
  // "=": exactly this name instead of a prefix.
  unless_set("NCCL_SOCKET_IFNAME", "=" + (interface.empty() ? "lo" : interface));
  unless_set("NCCL_RAS_ENABLE", "0");  // would listen for diagnostic tools
  // In-switch sums are not reproducible.
  unless_set("NCCL_NVLS_ENABLE", "0");
  // These records are read only by the watchdog thread.
  unless_set("TORCH_NCCL_TRACE_BUFFER_SIZE", "0");
  unless_set("TORCH_FR_BUFFER_SIZE", "0");
}

DeviceOffer nccl_offer(const c10::Device& device) {
  if (is_tpu(device)) return {.reason = "NCCL joins NVIDIA GPUs alone, and this is a TPU"};
  if (loaded().module == nullptr) return {.reason = loaded().reason};
  if (!device.is_cuda()) {
    return {.reason = "NCCL joins NVIDIA GPUs alone, and this is " + device.str()};
  }
  return {.position = loaded().module->position_of(device)};
}

std::unique_ptr<DeviceGroup> join_over_nccl(c10::intrusive_ptr<c10d::Store> store,
                                            const DeviceGroupOptions& options) {
  FT_CHECK(loaded().module != nullptr, "NCCL, which this process has not loaded");
  return loaded().module->join(std::move(store), options);
}

}  // namespace finetune
