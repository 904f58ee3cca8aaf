// SPDX-License-Identifier: MIT
#include "finetune/tensor/tpu.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/torch_build.h"
#include "tensor/pci_devices.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGoogle = "0x1ae0";  // also of its network cards and disks
constexpr const char* kLibrary = "TPU_LIBRARY_PATH";
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

bool is_loaded = false;

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

TpuPackages tpu_packages() {
  return tpu_packages(parent_path(parent_path(torch_library_folder())));
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

void keep_tpu_programs(const std::string& folder) {
  if (!has_tpu()) return;
  FileSystem::local().make_directories(folder);
  ::setenv("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", folder.c_str(), /*overwrite=*/0);
}

void load_tpu() {
  static std::once_flag once;
  std::call_once(once, [] {
    const TpuPackages packages = tpu_packages();
    if (const std::string problem = tpu_problem(packages); !problem.empty()) {
      throw Error(ErrorKind::kConfig, problem);
    }
    ::setenv("TF_CPP_MIN_LOG_LEVEL", "2", /*overwrite=*/0);  // XLA's notes on its start
    ::setenv(kLibrary, packages.library.c_str(), /*overwrite=*/0);
    load_library(
        packages.python,
        "; it is Python's own library, which TorchTPU's needs: Debian's package is libpython3");
    load_library(join_path(torch_library_folder(), "libtorch_python.so"));
    load_library(join_path(parent_path(parent_path(packages.glue)), "libxla_base.so"));
    load_library(packages.glue);
    if (!at::isPrivateUse1HooksRegistered()) {
      at::RegisterPrivateUse1HooksInterface(new TpuHooks);  // torch keeps it for the process's life
    }
    c10::register_privateuse1_backend("tpu");
    is_loaded = true;
  });
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
  return text + ")";
}

int64_t tpu_memory() { return own_tpu_hardware() ? own_tpu_hardware()->memory : 0; }

std::string tpu_environment(const TpuPackages& packages) {
  return format_text("TorchTPU {}{}", packages.torch_tpu,
                     packages.libtpu.empty() ? "" : ", libtpu " + packages.libtpu);
}

}  // namespace finetune
