// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "finetune/tensor/gpu.h"
#include "tensor/machine_folder.h"

namespace finetune {
namespace {

using NvidiaHardware = testing::MachineFolder;

TEST_F(NvidiaHardware, IsNotThereWithoutADriverOrADevice) {
  EXPECT_FALSE(has_nvidia_hardware(root()));
  write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
  EXPECT_FALSE(has_nvidia_hardware(root()));
  EXPECT_EQ(nvidia_driver_version(root()), "");
}

TEST_F(NvidiaHardware, IsFoundOnThePciBusWithoutADriver) {
  write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
  write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  EXPECT_TRUE(has_nvidia_hardware(root()));
}

TEST_F(NvidiaHardware, OfWslHasADriverAlone) {
  write("dev/dxg", "");
  EXPECT_TRUE(has_nvidia_hardware(root()));
}

TEST_F(NvidiaHardware, HasTheVersionOfItsDriver) {
  write("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  EXPECT_TRUE(has_nvidia_hardware(root()));
  EXPECT_EQ(nvidia_driver_version(root()), "550.54.15");
}

}  // namespace
}  // namespace finetune
