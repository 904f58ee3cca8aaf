// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "finetune/tensor/gpu.h"
#include "tensor/pci_devices.h"

namespace finetune {

// On the PCI bus; WSL has a driver without a PCI device.
bool has_nvidia_hardware(const std::string& root) {
  for (const char* driver : {"proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"}) {
    if (std::filesystem::exists(root + driver)) return true;
  }
  return std::ranges::any_of(pci_devices(root),
                             [](const PciDevice& device) { return device.vendor == "0x10de"; });
}

// The first line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...".
std::string nvidia_driver_version(const std::string& root) {
  std::ifstream file(root + "proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    const bool is_version = word.find_first_not_of("0123456789.") == std::string::npos &&
                            word.find('.') != std::string::npos;
    if (is_version) return word;
  }
  return "";
}

}  // namespace finetune
