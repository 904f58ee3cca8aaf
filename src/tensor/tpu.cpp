// SPDX-License-Identifier: MIT
#include "finetune/tensor/tpu.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/torch_build.h"
#include "tensor/pci_devices.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGoogle = "0x1ae0";  // also of its network cards and disks
constexpr const char* kLibrary = "TPU_LIBRARY_PATH";
constexpr const char* kKeptPrograms = "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT";
constexpr const char* kVisibleChips = "TPU_VISIBLE_CHIPS";
constexpr int64_t kGiB = int64_t{1} << 30;

struct Generation {
  std::string_view pci_device;
  std::string_view name;
  int64_t memory;
};
// torch_tpu/_internal/utils/hardware.py; memory of a chip by Cloud TPU's documentation.
constexpr std::array<Generation, 5> kGenerations = {{{"0x005e", "TPU v4", 32 * kGiB},
                                                     {"0x0062", "TPU v5p", 95 * kGiB},
                                                     {"0x0063", "TPU v5e", 16 * kGiB},
                                                     {"0x006f", "TPU v6e", 32 * kGiB},
                                                     {"0x0076", "TPU v7", 192 * kGiB}}};

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The version in the name of "torch_tpu-0.2.0.dist-info"; empty if that is not there.
std::string version_in(const std::string& folder, const std::string& package) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(package + "-") && name.ends_with(".dist-info")) {
      return name.substr(package.size() + 1, name.rfind('.') - package.size() - 1);
    }
  }
  return "";
}

// "lib/python3.11/site-packages": libtorch_python needs the functions of that Python's library.
std::string python_library(const std::string& folder) {
  for (fs::path path = folder; path.has_relative_path(); path = path.parent_path()) {
    const std::string name = path.filename();
    if (name.starts_with("python3.")) return "lib" + name + ".so.1.0";
  }
  return "";
}

// In the folder of the packages' Python or of the one that made their virtual environment; else the
// loader's own path has it.
std::string find_python(const std::string& folder) {
  const std::string name = python_library(folder);
  if (name.empty()) return "";
  const fs::path prefix = fs::path(folder).parent_path().parent_path().parent_path();
  std::vector<fs::path> folders = {prefix / "lib"};
  std::ifstream settings(prefix / "pyvenv.cfg");
  for (std::string line; std::getline(settings, line);) {
    if (!line.starts_with("home")) continue;
    const size_t begin = line.find_first_not_of(" =", 4);
    if (begin != std::string::npos) {
      folders.push_back(fs::path(line.substr(begin)).parent_path() / "lib");
    }
  }
  for (const fs::path& where : folders) {
    if (fs::exists(where / name)) return where / name;
  }
  return name;
}

// TorchTPU's Python otherwise sets these and the name.
class TpuHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return guard() != nullptr; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return guard() == nullptr ? 0 : guard()->deviceCount();
  }
  c10::DeviceIndex getCurrentDevice() const override { return guard()->getDevice().index(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return guard()->exchangeDevice({c10::DeviceType::PrivateUse1, device}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    guard()->setDevice({c10::DeviceType::PrivateUse1, device});
  }

 private:
  static const c10::impl::DeviceGuardImplInterface* guard() {
    return c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::PrivateUse1)]
        .load();
  }
};

// Numbers of chips, as libtpu counts them; empty where nothing says how many there are.
std::vector<std::string> visible_chips() {
  std::vector<std::string> chips;
  std::istringstream list(environment(kVisibleChips));
  for (std::string name; std::getline(list, name, ',');) chips.push_back(name);
  const int64_t on_bus = own_tpu_hardware() ? own_tpu_hardware()->chips : 0;
  while (environment(kVisibleChips).empty() && std::ssize(chips) < on_bus) {
    chips.push_back(std::to_string(chips.size()));
  }
  return chips;
}

bool is_loaded = false;

// XLA ends the process, with exit code 1, if the file is not a TPU's library.
void check_plugin(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const bool has_function = library != nullptr && ::dlsym(library, "GetPjrtApi") != nullptr;
  if (has_function) return;  // it stays open for XLA
  const char* const reason = ::dlerror();
  throw Error(
      ErrorKind::kConfig,
      format_text("'{}' is no library of a TPU (libtpu.so, or what TPU_LIBRARY_PATH names): "
                  "{}; pip install --force-reinstall libtpu, or set accelerator: cpu",
                  path, reason == nullptr ? "unknown" : reason));
}

// TorchTPU opens the TPU at its first use, and aborts the process where that fails, with the reason
// in a line of XLA's log. While an object lives, that line becomes this program's error.
class OpeningTpu {
 public:
  OpeningTpu() {
    saved_ = ::dup(STDERR_FILENO);
    log_ = ::memfd_create("finetune-tpu", MFD_CLOEXEC);
    if (saved_ < 0 || log_ < 0) return;
    (void)::dup2(log_, STDERR_FILENO);
    before_ = std::signal(SIGABRT, end_process);
  }
  OpeningTpu(const OpeningTpu&) = delete;
  OpeningTpu& operator=(const OpeningTpu&) = delete;
  ~OpeningTpu() {
    if (before_ != SIG_ERR) (void)std::signal(SIGABRT, before_);
    if (saved_ >= 0 && log_ >= 0) (void)::dup2(saved_, STDERR_FILENO);
    for (const int descriptor : {saved_, log_}) {
      if (descriptor >= 0) ::close(descriptor);
    }
  }

 private:
  // In the thread that aborted: it may allocate.
  static void end_process(int /*signal*/) {
    std::array<char, 8192> text = {};
    const ssize_t size = ::pread(log_, text.data(), text.size(), 0);
    std::string said(text.data(), static_cast<size_t>(std::max<ssize_t>(0, size)));
    (void)::dup2(saved_, STDERR_FILENO);
    for (const std::string_view reason : {"client: ", "] "}) {
      const size_t at = said.find(reason);
      if (at == std::string::npos) continue;
      said.erase(0, at + reason.size());
      break;
    }
    said.resize(std::min(said.size(), said.find('\n')));
    if (said.ends_with('.')) said.pop_back();
    log::error("the TPU cannot be used: " + said +
               "; end the process that uses it (sudo lsof /dev/accel* /dev/vfio/*), or set "
               "accelerator: cpu");
    ::_exit(Error(ErrorKind::kDevice, "").exit_code());
  }

  static inline int saved_ = -1;
  static inline int log_ = -1;
  void (*before_)(int) = SIG_ERR;
};

// TorchTPU's cache in memory, without which it does not use the folder of keep_tpu_programs(). Each
// process has its own: programs that were read from the folder are written there again, and XLA's
// plugin for CPUs writes those without their functions ("function ... not found" in the next
// session, torch_tpu 0.2.0).
constexpr const char* kMemoryCache = "TORCH_TPU_TIER2_COMPILATION_CACHE";
constexpr const char* kMemoryCacheFolder = "/dev/shm/torch_tpu_cache";
constexpr std::string_view kOwnCache = "finetune-";  // and the process's number
std::string own_memory_cache;                        // a folder; empty: none

void use_own_memory_cache() {
  if (!environment(kMemoryCache).empty()) return;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kMemoryCacheFolder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kOwnCache)) continue;
    const std::string process = name.substr(kOwnCache.size());
    if (!fs::exists("/proc/" + process)) fs::remove_all(entry.path(), error);  // it was killed
  }
  const std::string name = std::string(kOwnCache) + std::to_string(::getpid());
  ::setenv(kMemoryCache, name.c_str(), 1);
  own_memory_cache = join_path(kMemoryCacheFolder, name);
}

// Keeps a library for the life of the process.
void load_library(const std::string& path, std::string_view advice = "") {
  if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  const char* const reason = ::dlerror();
  throw Error(ErrorKind::kConfig,
              format_text("'{}', which training on a TPU needs, cannot be loaded: {}{}", path,
                          reason == nullptr ? "unknown" : reason, advice));
}

}  // namespace

std::optional<TpuHardware> tpu_hardware(const std::string& root) {
  std::optional<TpuHardware> found;
  for (const PciDevice& one : pci_devices(root)) {
    const auto generation = std::ranges::find(kGenerations, one.device, &Generation::pci_device);
    if (one.vendor != kGoogle || generation == kGenerations.end()) continue;
    if (!found) found = {.name = std::string(generation->name), .memory = generation->memory};
    ++found->chips;
  }
  return found;
}

const std::optional<TpuHardware>& own_tpu_hardware() {
  static const std::optional<TpuHardware> found = tpu_hardware("/");
  return found;
}

bool has_tpu() { return !environment(kLibrary).empty() || own_tpu_hardware(); }

bool takes_tpu(Accelerator wanted) {
  return (wanted == Accelerator::kTpu || wanted == Accelerator::kAuto) && has_tpu();
}

std::string tpu_note() {
  const bool is_asked = environment("PJRT_DEVICE") == "TPU" || !environment("TPU_NAME").empty() ||
                        !environment("COLAB_TPU_ADDR").empty();
  return is_asked && !has_tpu()
             ? "a TPU is asked for (PJRT_DEVICE, TPU_NAME or COLAB_TPU_ADDR), and "
               "this machine has none: training uses a GPU where one is there, else "
               "the CPU"
             : "";
}

TpuPackages tpu_packages(const std::string& folder) {
  TpuPackages packages{.torch_tpu = version_in(folder, "torch_tpu"),
                       .libtpu = version_in(folder, "libtpu"),
                       .library = environment(kLibrary),
                       .glue = "",
                       .python = find_python(folder)};
  if (packages.library.empty() && !packages.libtpu.empty()) {
    packages.library = join_path(folder, "libtpu/libtpu.so");
  }
  std::string version = torch_built_for();
  std::ranges::replace(version, '.', '_');
  const std::string glue = join_path(
      folder, "torch_tpu/csrc/common/glue_" + version + "_0/libpywrap_" + version + "_0_common.so");
  if (fs::exists(glue)) packages.glue = glue;
  return packages;
}

const TpuPackages& tpu_packages() {
  static const TpuPackages found = tpu_packages(parent_path(parent_path(torch_library_folder())));
  return found;
}

std::string tpu_problem(const TpuPackages& packages) {
  if (packages.torch_tpu.empty()) {
    return "this machine has a TPU, and the torch in use comes without torch_tpu: pip install "
           "torch-tpu libtpu (or set accelerator: cpu)";
  }
  if (packages.glue.empty()) {
    return format_text(
        "torch_tpu {} has none of its libraries for torch {}: pip install --upgrade torch-tpu, or "
        "a torch that it has one for",
        packages.torch_tpu, torch_built_for());
  }
  if (packages.library.empty()) {
    return "torch_tpu is installed without libtpu, the TPU's own library: pip install libtpu";
  }
  if (!fs::exists(packages.library)) {
    return format_text("TPU_LIBRARY_PATH names '{}', which is not there", packages.library);
  }
  return "";
}

int64_t kept_tpu_programs() {
  const std::string folder = environment(kKeptPrograms);
  std::error_code error;
  int64_t count = 0;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    count += at->is_regular_file(error) ? 1 : 0;
  }
  return count;
}

void keep_tpu_programs(const std::string& folder) {
  FileSystem::local().make_directories(folder);
  ::setenv(kKeptPrograms, folder.c_str(), /*overwrite=*/0);
  // Else a program that is not read at once is compiled meanwhile.
  ::setenv("TORCH_TPU_INTERNAL_TIER3_COMPILATION_CACHE_LOCAL_BACKUP_TASK", "0", /*overwrite=*/0);
}

int64_t tpu_chips() { return std::ssize(visible_chips()); }

void take_tpu_chip(int64_t local_rank) {
  const std::vector<std::string> chips = visible_chips();
  if (!chips.empty() && local_rank >= std::ssize(chips)) {
    throw Error(ErrorKind::kConfig,
                format_text("num_processes: each process needs another chip, and this machine has "
                            "{}: set num_processes: auto",
                            chips.size()));
  }
  // A slice of one chip, and its port (Cloud TPU's documentation).
  constexpr int64_t kFirstPort = 8476;
  const std::string port = std::to_string(kFirstPort + local_rank);
  const auto rank = static_cast<size_t>(local_rank);
  ::setenv(kVisibleChips, (chips.empty() ? std::to_string(rank) : chips[rank]).c_str(), 1);
  ::setenv("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1", 1);
  ::setenv("TPU_PROCESS_BOUNDS", "1,1,1", 1);
  ::setenv("TPU_MESH_CONTROLLER_ADDRESS", ("localhost:" + port).c_str(), 1);
  ::setenv("TPU_MESH_CONTROLLER_PORT", port.c_str(), 1);
}

void load_tpu() {
  static std::once_flag once;
  std::call_once(once, [] {
    const TpuPackages& packages = tpu_packages();
    if (const std::string problem = tpu_problem(packages); !problem.empty()) {
      throw Error(ErrorKind::kConfig, problem);
    }
    // Neither XLA's notes nor all the errors that follow a first one, which is thrown too.
    ::setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);
    ::setenv(kLibrary, packages.library.c_str(), /*overwrite=*/0);
    use_own_memory_cache();
    load_library(
        packages.python,
        "; it is Python's own library, which TorchTPU's needs: Debian's package is libpython3");
    load_library(join_path(torch_library_folder(), "libtorch_python.so"));
    check_plugin(packages.library);
    load_library(join_path(parent_path(parent_path(packages.glue)), "libxla_base.so"));
    load_library(packages.glue);
    if (!at::isPrivateUse1HooksRegistered()) {
      at::RegisterPrivateUse1HooksInterface(new TpuHooks);  // torch keeps it for the process's life
    }
    c10::register_privateuse1_backend("tpu");
    is_loaded = true;
    const OpeningTpu opening;
    (void)TpuHooks().deviceCount();
    (void)at::zeros({1}, at::TensorOptions(c10::Device(c10::kPrivateUse1, 0))).cpu();
  });
}

void drop_tpu_memory_cache() {
  std::error_code error;
  if (!own_memory_cache.empty()) fs::remove_all(own_memory_cache, error);
}

bool is_tpu(const c10::Device& device) {
  return is_loaded && device.type() == c10::DeviceType::PrivateUse1;
}

std::string describe_tpu(const c10::Device& device) {
  const std::optional<TpuHardware>& hardware = own_tpu_hardware();
  const std::string name = hardware ? hardware->name : "TPU of " + file_name(environment(kLibrary));
  std::string text = format_text("{} (tpu:{} of {}", name, static_cast<int64_t>(device.index()),
                                 static_cast<int64_t>(TpuHooks().deviceCount()));
  if (hardware) text += format_text(", {} GiB", hardware->memory / kGiB);
  return text + ", " + tpu_environment(tpu_packages()) + ")";
}

std::string tpu_summary() {
  const std::optional<TpuHardware>& hardware = own_tpu_hardware();
  const std::string chip =
      hardware ? format_text("{}, {} GiB, ", hardware->name, hardware->memory / kGiB) : "";
  return chip + tpu_environment(tpu_packages());
}

int64_t tpu_memory() { return own_tpu_hardware() ? own_tpu_hardware()->memory : 0; }

std::string tpu_environment(const TpuPackages& packages) {
  return format_text("TorchTPU {}{}", packages.torch_tpu,
                     packages.libtpu.empty() ? "" : ", libtpu " + packages.libtpu);
}

}  // namespace finetune
