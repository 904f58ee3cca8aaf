// SPDX-License-Identifier: MIT
#include "finetune/tensor/torch_build.h"

#include <link.h>
#include <torch/version.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "finetune/base/file_system.h"
#include "finetune/tensor/device.h"

namespace finetune {
namespace {

// Reads "__version__ = '2.13.0+cu130'" in the Python package and returns "2.13.0"; empty without
// that file.
std::string version_of_package(const std::string& library_folder) {
  std::ifstream file(join_path(parent_path(library_folder), "version.py"));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("__version__")) continue;
    const size_t begin = line.find_first_of("0123456789");
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_first_of("+'\"", begin) - begin);
  }
  return "";
}

}  // namespace

std::string torch_built_for() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
}

std::string torch_library_folder() {
  std::string found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* result) {
        if (file_name(library->dlpi_name) != "libtorch_cpu.so") return 0;
        *static_cast<std::string*>(result) = library->dlpi_name;
        return 1;
      },
      &found);
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(found.c_str(), nullptr),
                                                         &std::free);
  return parent_path(real ? real.get() : found);
}

// libtorch does not report its version: a patch release may compute other bits than the one that
// this program was compiled for.
std::string torch_version() {
  static const std::string version = [] {
    const std::string found = version_of_package(torch_library_folder());
    return found.empty() ? std::string(TORCH_VERSION) : found;
  }();
  return version;
}

}  // namespace finetune
