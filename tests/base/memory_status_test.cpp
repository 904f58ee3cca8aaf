// SPDX-License-Identifier: MIT
#include "finetune/base/memory_status.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

// A machine with 8 GiB available, whose process is in the group /outer/inner.
class MemoryStatus : public ::testing::Test {
 protected:
  MemoryStatus() {
    write("/proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
    write("/proc/self/cgroup", "3:cpu,memory:/outer/inner\n0::/outer/inner\n");
    ::setenv("FINETUNE_TEST_MEMORY_ROOT", (folder_ / "root").c_str(), 1);
  }
  ~MemoryStatus() override { ::unsetenv("FINETUNE_TEST_MEMORY_ROOT"); }

  void write(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = folder_ / "root" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  void write_group(const std::string& folder, const std::string& limit, const std::string& used,
                   const std::string& statistics = "") const {
    write("/sys/fs/cgroup" + folder + "/memory.max", limit);
    write("/sys/fs/cgroup" + folder + "/memory.current", used);
    write("/sys/fs/cgroup" + folder + "/memory.stat", statistics);
  }

 private:
  testing::TemporaryFolder folder_;
};

constexpr int64_t kGiB = int64_t{1} << 30;

TEST_F(MemoryStatus, IsTheMachinesWithoutALimit) {
  EXPECT_EQ(available_memory(), 8 * kGiB);
  EXPECT_EQ(machine_memory(), 16 * kGiB);
  EXPECT_GT(resident_memory(), 0);
  EXPECT_GE(attainable_memory(), 8 * kGiB + resident_memory() / 2);
  write_group("/outer/inner", "max", "1000");
  EXPECT_EQ(available_memory(), 8 * kGiB);
}

// Kernels differ in how much of a file they map, and reclaim it on demand.
// Reading a page makes the thread sanitizer allocate memory for it.
#if !defined(__SANITIZE_THREAD__)
TEST_F(MemoryStatus, DoesNotCountMappedFilePagesAsOccupied) {
  constexpr size_t kBytes = size_t{96} << 20;
  constexpr int64_t kMiB = int64_t{1} << 20;
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("data", std::string(kBytes, 'x'));
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const int64_t before = resident_memory();
  const int64_t reclaimable = reclaimable_resident_memory();
  const volatile char* bytes = static_cast<const char*>(mapped);
  for (size_t at = 0; at < kBytes; at += 4096) (void)bytes[at];
  EXPECT_LT(resident_memory(), before + 8 * kMiB);
  EXPECT_GE(reclaimable_resident_memory(), reclaimable + 40 * kMiB);
  ::munmap(mapped, kBytes);
  ::close(descriptor);
}
#endif

TEST_F(MemoryStatus, CountsAnonymousPagesAsOccupied) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = resident_memory();
  const std::string block(size_t{kBytes}, 'x');
  EXPECT_GE(resident_memory(), before + kBytes / 2) << block.size();
}

TEST_F(MemoryStatus, IsWhatTheNarrowestGroupLeaves) {
  write_group("/outer/inner", "5000", "1000");
  EXPECT_EQ(available_memory(), 4000);
  write_group("/outer", "3000", "1000");
  EXPECT_EQ(available_memory(), 2000);
  write_group("", "1500", "1000");
  EXPECT_EQ(available_memory(), 500);
  EXPECT_EQ(machine_memory(), 1500);
}

TEST_F(MemoryStatus, IsWhatTheLimitOfTheAddressSpaceLeaves) {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("VmSize:")) {
  }
  const rlim_t used = 1024 * std::stoull(line.substr(7));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limit = {.rlim_cur = used + 256 * (rlim_t{1} << 20), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  const int64_t available = available_memory();
  const int64_t attainable = attainable_memory();
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LE(available, 256 * (int64_t{1} << 20));
  EXPECT_GE(available, 200 * (int64_t{1} << 20));
  EXPECT_LT(attainable, 8 * kGiB);
}

TEST_F(MemoryStatus, CountsTheFileCacheOfAGroupAsFree) {
  write_group("/outer/inner", "5000", "4900", "anon 1\nactive_file 1000\ninactive_file 2000\n");
  EXPECT_EQ(available_memory(), 3100);
  write_group("/outer/inner", "5000", "5200", "anon 5200\n");
  EXPECT_EQ(available_memory(), 0);
}

TEST_F(MemoryStatus, ReadsGroupsOfTheFirstVersion) {
  const std::string group = "/sys/fs/cgroup/memory/outer/inner/";
  write(group + "memory.limit_in_bytes", "9000\n");
  write(group + "memory.usage_in_bytes", "8000\n");
  write(group + "memory.stat", "cache 7000\ntotal_inactive_file 500\ntotal_active_file 100\n");
  EXPECT_EQ(available_memory(), 1600);
}

}  // namespace
}  // namespace finetune
