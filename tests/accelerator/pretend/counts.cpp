// SPDX-License-Identifier: MIT
#include "counts.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "memory.h"

namespace pretend {

Counts& Counts::instance() {
  static auto* const counts = new Counts();
  return *counts;
}

Counts::Counts() {
  std::atexit([] { instance().write(); });
}

void Counts::add_kernel(const std::string& name, int64_t read, int64_t written,
                        const std::set<std::string>& types) {
  const std::lock_guard lock(mutex_);
  Kernel& kernel = kernels_[name];
  ++kernel.calls;
  kernel.read += read;
  kernel.written += written;
  kernel.types.insert(types.begin(), types.end());
}

void Counts::add_wait(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ++waits_[reason];
}

void Counts::write() {
  const char* const folder = std::getenv("PRETEND_ACCELERATOR_REPORT");
  // Of the CUDA libraries of ../cuda/, if they are loaded.
  if (void* const other = ::dlsym(RTLD_DEFAULT, "pretend_cuda_report")) {
    reinterpret_cast<void (*)()>(other)();
  }
  // A signal handler that exits the process may have interrupted a count.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || folder == nullptr || kernels_.empty()) return;
  const char* const device = std::getenv("CUDA_VISIBLE_DEVICES");
  std::ofstream file(std::string(folder) + "/" + std::to_string(::getpid()) + ".json");
  const char* const workspace = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  const at::Context& torch = at::globalContext();
  const bool is_exact = torch.float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  file << "{\"device\": \"" << (device != nullptr ? device : "0")
       << "\", \"tf32\": " << (is_exact ? "false" : "true")
       << ", \"deterministic\": " << (torch.deterministicAlgorithms() ? "true" : "false")
       << ", \"cublas_workspace\": \"" << (workspace != nullptr ? workspace : "")
       << "\",\n \"peak_bytes\": " << DeviceMemory::instance().stats().allocated_bytes[0].peak
       << ",\n \"waits\": {";
  const char* separator = "";
  for (const auto& [reason, count] : waits_) {
    file << separator << "\"" << reason << "\": " << count;
    separator = ", ";
  }
  file << "},\n \"kernels\": {";
  separator = "\n  ";
  for (const auto& [name, kernel] : kernels_) {
    file << separator << "\"" << name << "\": {\"calls\": " << kernel.calls
         << ", \"read\": " << kernel.read << ", \"written\": " << kernel.written
         << ", \"types\": [";
    for (const std::string& type : kernel.types) {
      file << (&type == &*kernel.types.begin() ? "\"" : ", \"") << type << "\"";
    }
    file << "]}";
    separator = ",\n  ";
  }
  file << "}}\n";
}

}  // namespace pretend

// Ranks exit with _exit, which runs no functions registered by atexit().
extern "C" __attribute__((visibility("default"))) void _exit(int code) {
  pretend::Counts::instance().write();
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}
