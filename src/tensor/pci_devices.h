// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace finetune {

struct PciDevice {
  std::string vendor;  // "0x10de"
  std::string device;
};

// Returns the devices on the PCI bus, as /sys lists them. `root`: the file system's root.
inline std::vector<PciDevice> pci_devices(const std::string& root) {
  std::vector<PciDevice> found;
  std::error_code error;
  const std::string folder = root + "sys/bus/pci/devices";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    PciDevice& one = found.emplace_back();
    std::ifstream(entry.path() / "vendor") >> one.vendor;
    std::ifstream(entry.path() / "device") >> one.device;
  }
  return found;
}

}  // namespace finetune
