// SPDX-License-Identifier: MIT
#include "finetune/tensor/tpu.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "finetune/base/error.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/torch_build.h"
#include "support/golden.h"
#include "tensor/machine_folder.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;

class Tpu : public testing::MachineFolder {
 protected:
  void SetUp() override { ::unsetenv("TPU_LIBRARY_PATH"); }
  void TearDown() override { ::unsetenv("TPU_LIBRARY_PATH"); }

  void add_pci(const std::string& slot, const std::string& vendor,
               const std::string& device) const {
    write("sys/bus/pci/devices/" + slot + "/vendor", vendor + "\n");
    write("sys/bus/pci/devices/" + slot + "/device", device + "\n");
  }
  [[nodiscard]] std::string packages() const { return root() + "lib/python3.11/site-packages"; }
  void add_package(const std::string& name) const {
    write("lib/python3.11/site-packages/" + name + ".dist-info/METADATA", "");
  }
  void add_glue() const {
    std::string version = torch_built_for();
    version.replace(version.find('.'), 1, "_");
    write("lib/python3.11/site-packages/torch_tpu/csrc/common/glue_" + version + "_0/libpywrap_" +
              version + "_0_common.so",
          "");
  }
};

TEST_F(Tpu, IsCountedOnThePciBusByItsGeneration) {
  EXPECT_FALSE(tpu_hardware(root()).has_value());
  add_pci("0000:00:04.0", "0x1ae0", "0x0063");
  add_pci("0000:00:05.0", "0x1ae0", "0x0063");
  const std::optional<TpuHardware> found = tpu_hardware(root());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "TPU v5e");
  EXPECT_EQ(found->chips, 2);
  EXPECT_EQ(found->memory, int64_t{16} << 30);
}

TEST_F(Tpu, IsNoOtherDeviceOfGoogles) {
  add_pci("0000:00:04.0", "0x1ae0", "0x0042");  // the network card of every machine there
  EXPECT_FALSE(tpu_hardware(root()).has_value());
}

TEST_F(Tpu, IsAlsoALibraryThatTheUserNames) {
  ::setenv("TPU_LIBRARY_PATH", "/nowhere/libtpu.so", 1);
  EXPECT_TRUE(has_tpu());
}

TEST_F(Tpu, PackagesAreThoseOfTheTorchInUse) {
  add_package("torch_tpu-0.2.0");
  add_package("libtpu-0.0.52");
  add_glue();
  write("lib/python3.11/site-packages/libtpu/libtpu.so", "");
  write("lib/libpython3.11.so.1.0", "");
  const TpuPackages found = tpu_packages(packages());
  EXPECT_EQ(found.torch_tpu, "0.2.0");
  EXPECT_EQ(found.libtpu, "0.0.52");
  EXPECT_EQ(found.library, packages() + "/libtpu/libtpu.so");
  EXPECT_EQ(found.python, root() + "lib/libpython3.11.so.1.0");
  EXPECT_EQ(tpu_problem(found), "");
}

TEST_F(Tpu, OfAVirtualEnvironmentHasThePythonThatMadeIt) {
  write("pyvenv.cfg", "home = " + root() + "base/bin\nversion = 3.11.7\n");
  write("base/lib/libpython3.11.so.1.0", "");
  EXPECT_EQ(tpu_packages(packages()).python, root() + "base/lib/libpython3.11.so.1.0");
}

TEST_F(Tpu, ProblemsNameTheLineThatMendsThem) {
  EXPECT_GOLDEN(tpu_problem(tpu_packages(packages())));
  add_package("torch_tpu-0.2.0");
  const std::string apart = tpu_problem(tpu_packages(packages()));
  EXPECT_THAT(
      apart, HasSubstr("torch_tpu 0.2.0 has none of its libraries for torch " + torch_built_for()));
  EXPECT_THAT(apart, HasSubstr("pip install --upgrade torch-tpu"));
  add_glue();
  EXPECT_GOLDEN(tpu_problem(tpu_packages(packages())));
  ::setenv("TPU_LIBRARY_PATH", "/nowhere/libtpu.so", 1);
  EXPECT_GOLDEN(tpu_problem(tpu_packages(packages())));
}

TEST_F(Tpu, IsAnErrorWhereItIsAskedForAndNotThere) {
  if (has_tpu()) GTEST_SKIP() << "this machine has one";
  try {
    (void)pick_device(Accelerator::kTpu);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_GOLDEN(error.what());
  }
}

TEST_F(Tpu, OfAProcessIsOneOfTheVisibleChips) {
  ::setenv("TPU_VISIBLE_CHIPS", "2,3", 1);
  EXPECT_EQ(tpu_chips(), 2);
  take_tpu_chip(1);
  EXPECT_STREQ(std::getenv("TPU_VISIBLE_CHIPS"), "3");
  EXPECT_STREQ(std::getenv("TPU_PROCESS_BOUNDS"), "1,1,1");
  EXPECT_STREQ(std::getenv("TPU_MESH_CONTROLLER_PORT"), "8477");
  EXPECT_THROW(take_tpu_chip(1), Error) << "one is left, of rank 0";
  for (const char* name :
       {"TPU_VISIBLE_CHIPS", "TPU_PROCESS_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS",
        "TPU_MESH_CONTROLLER_ADDRESS", "TPU_MESH_CONTROLLER_PORT"}) {
    ::unsetenv(name);
  }
}

TEST_F(Tpu, KeptProgramsAreTheFilesOfTheirFolder) {
  constexpr const char* kFolder = "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT";
  EXPECT_EQ(kept_tpu_programs(), 0);
  write("programs/version/one", "");
  write("programs/version/two", "");
  ::setenv(kFolder, (root() + "programs").c_str(), 1);
  EXPECT_EQ(kept_tpu_programs(), 2);
  ::unsetenv(kFolder);
}

TEST_F(Tpu, OffersNoneOfAGpusFeatures) {
  const DeviceFeatures cpu = features_of(c10::Device(c10::kCPU));
  EXPECT_FALSE(cpu.streams || cpu.pinned || cpu.statistics);
  const DeviceFeatures gpu = features_of(c10::Device(c10::kCUDA, 0));
  EXPECT_TRUE(gpu.streams && gpu.pinned && gpu.statistics);
  EXPECT_FALSE(is_tpu(c10::Device(c10::kPrivateUse1, 0))) << "load_tpu() was not called";
}

}  // namespace
}  // namespace finetune
