// SPDX-License-Identifier: MIT
#include "kernels/cuda/cubin_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder.h"
#include "kernels/cuda/nvrtc.h"

namespace finetune::kernels::cuda {
namespace {

using finetune::testing::TemporaryFolder;

TEST(CubinCache, KeepsCodeAndFindsDamage) {
  const TemporaryFolder folder;
  const CubinCache cache(folder / "kernels");
  const std::string key = CubinCache::key_of("program", {"-option"}, "13.0");
  EXPECT_FALSE(cache.find(key));
  const std::string code("cubin\0with zeros", 16);
  cache.keep(key, code);
  EXPECT_EQ(cache.find(key), code);

  const std::string path = folder / "kernels/" + key + ".cubin";
  std::fstream(path, std::ios::in | std::ios::out).seekp(40).put('?');
  EXPECT_FALSE(cache.find(key)) << "a changed byte";
  cache.keep(key, code);
  EXPECT_EQ(cache.find(key), code) << "a damaged entry is replaced";
  std::filesystem::resize_file(path, 37);
  EXPECT_FALSE(cache.find(key)) << "a cut file";
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "kernels")) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 1U) << "nothing temporary is left";
}

TEST(CubinCache, KeysDependOnEverythingThatDecidesTheCode) {
  const std::string key = CubinCache::key_of("program", {"--sm_75"}, "13.0");
  EXPECT_NE(CubinCache::key_of("programs", {"--sm_75"}, "13.0"), key);
  EXPECT_NE(CubinCache::key_of("program", {"--sm_80"}, "13.0"), key);
  EXPECT_NE(CubinCache::key_of("program", {"--sm_75"}, "12.9"), key);
  EXPECT_NE(CubinCache::key_of("program", {"--sm_7", "5"}, "13.0"), key);
}

TEST(CubinCache, AFolderThatCannotBeWrittenCostsNothingElse) {
  const CubinCache cache("/proc/no such folder");
  cache.keep("key", "code");
  EXPECT_FALSE(cache.find("key"));
  const CubinCache none("");
  none.keep("key", "code");
  EXPECT_FALSE(none.find("key"));
}

TEST(CompileTarget, IsTheGpusArchitectureOrOneThatRunsOnIt) {
  const std::vector<int> known = {75, 80, 86, 90, 100, 120};
  EXPECT_EQ(target_of(86, known).option, "--gpu-architecture=sm_86");
  EXPECT_EQ(target_of(89, known).option, "--gpu-architecture=sm_86");
  EXPECT_EQ(target_of(103, known).option, "--gpu-architecture=sm_100");
  EXPECT_EQ(target_of(130, known).option, "--gpu-architecture=compute_120");
  EXPECT_TRUE(target_of(130, known).to_ptx);
  EXPECT_FALSE(target_of(75, known).to_ptx);
  EXPECT_THROW((void)target_of(70, known), std::runtime_error);
}

TEST(Nvrtc, IsFoundBesideCudartOfBothGenerations) {
  const TemporaryFolder folder;
  const auto touch = [&](const std::string& name) {
    const std::filesystem::path path = folder / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path);
  };
  touch("nvidia/cu13/lib/libcudart.so.13");
  touch("nvidia/cu13/lib/libnvrtc.so.13");
  touch("nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  touch("nvidia/cuda_runtime/lib/libcudart.so.12");
  touch("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  EXPECT_EQ(nvrtc_beside(folder / "nvidia/cu13/lib/libcudart.so.13"),
            (std::vector<std::string>{folder / "nvidia/cu13/lib/libnvrtc.so.13",
                                      folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}));
  EXPECT_EQ(nvrtc_beside(folder / "nvidia/cuda_runtime/lib/libcudart.so.12"),
            (std::vector<std::string>{folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}));
  EXPECT_THROW(Nvrtc(folder / "nvidia/cu13/lib/libnvrtc.so.13"), std::runtime_error);
}

}  // namespace
}  // namespace finetune::kernels::cuda
