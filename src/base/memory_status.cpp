// SPDX-License-Identifier: MIT
#include "finetune/base/memory_status.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {
namespace {

std::atomic<int64_t> counted_pages = kMappedCode;  // bytes

std::string system_path(const std::string& path) {
  const char* root = std::getenv("FINETUNE_TEST_MEMORY_ROOT");
  return root != nullptr ? root + path : path;
}

// Returns the number at the start of a file; nullopt if there is none ("max").
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number) || number < 0) return std::nullopt;
  return number;
}

// Returns the value of a line "name number" or "name: number kB"; 0 if there is none.
int64_t value_in(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string name;
  for (int64_t value = 0; file >> name >> value;) {
    if (name == wanted) return value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// Lines of /proc/self/status, in bytes; all are read at once.
class Status {
 public:
  Status() {
    std::ifstream file("/proc/self/status");
    std::array<char, 4096> text;
    file.read(text.data(), text.size());
    text_.assign(text.data(), static_cast<size_t>(file.gcount()));
  }
  // nullopt: the kernel does not report it.
  [[nodiscard]] std::optional<int64_t> bytes(const std::string& name) const {
    const size_t found = text_.find("\n" + name);
    if (found == std::string::npos) return std::nullopt;
    return 1024 * std::atoll(text_.c_str() + found + 1 + name.size());
  }
  [[nodiscard]] int64_t resident() const {
    const std::optional<int64_t> anonymous = bytes("RssAnon:");
    if (anonymous) return *anonymous + bytes("RssShmem:").value_or(0);
    return bytes("VmRSS:").value_or(0);  // Linux before 4.5
  }
  [[nodiscard]] int64_t reclaimable() const {
    return std::max<int64_t>(0, bytes("RssFile:").value_or(0) - counted_pages);
  }
  [[nodiscard]] int64_t peak() const {
    if (const std::optional<int64_t> peak = bytes("VmHWM:")) return *peak;
    struct rusage usage = {};  // sandboxes whose kernel does not report it
    ::getrusage(RUSAGE_SELF, &usage);
    return int64_t{1024} * usage.ru_maxrss;
  }

 private:
  std::string text_;
};

int64_t system_memory(const std::string& line) {
  return 1024 * value_in(system_path("/proc/meminfo"), line);
}

// File and line names of one version of control groups.
struct GroupFiles {
  std::string controller;  // in /proc/self/cgroup
  std::string mount;
  std::string limit, used;
  std::string inactive, active;  // file cache, lines of memory.stat
};

const GroupFiles kVersions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", "total_active_file"}};

// Returns the process's group from /proc/self/cgroup: "4:cpu,memory:/path", in version 2
// "0::/path".
std::string group_of(const std::string& controller) {
  std::ifstream file(system_path("/proc/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = "," + line.substr(first + 1, second - first - 1) + ",";
    if (list.find("," + controller + ",") != std::string::npos) return line.substr(second + 1);
  }
  return "/";
}

// Returns the folders of the process's group and of the groups above it, innermost first. A
// container may see only the outermost one, under a path of the host that does not exist in it.
std::vector<std::string> group_folders(const GroupFiles& version) {
  std::vector<std::string> folders;
  std::string group = group_of(version.controller);
  while (group.size() > 1) {
    folders.push_back(system_path(version.mount) + group);
    group.resize(group.find_last_of('/'));
  }
  folders.push_back(system_path(version.mount));
  return folders;
}

// Returns what a group may still allocate; nullopt without a limit.
std::optional<int64_t> left_in_group(const std::string& folder, const GroupFiles& version) {
  const std::optional<int64_t> limit = number_in(folder + "/" + version.limit);
  const std::optional<int64_t> used = number_in(folder + "/" + version.used);
  if (!limit || !used) return std::nullopt;
  const std::string statistics = folder + "/memory.stat";
  const int64_t cache =
      value_in(statistics, version.inactive) + value_in(statistics, version.active);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cache));
}

// Returns the address space that RLIMIT_AS leaves (ulimit -v, batch systems); nullopt without a
// limit. Never 0, which means unknown.
std::optional<int64_t> left_in_address_space() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto most =
      static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
  return std::max<int64_t>(1, most - Status().bytes("VmSize:").value_or(0));
}

}  // namespace

void count_mapped_memory(int64_t bytes) { counted_pages += bytes; }

int64_t resident_memory() { return Status().resident(); }

int64_t peak_resident_memory() {
  const Status status;
  return std::max(status.peak() - status.reclaimable(), status.resident());
}

int64_t reclaimable_resident_memory() { return Status().reclaimable(); }

int64_t available_memory() {
  int64_t available = system_memory("MemAvailable:");
  for (const GroupFiles& version : kVersions) {
    for (const std::string& folder : group_folders(version)) {
      if (const auto left = left_in_group(folder, version)) available = std::min(available, *left);
    }
  }
  const std::optional<int64_t> address_space = left_in_address_space();
  if (address_space) available = std::min(available, *address_space);
  return available;
}

int64_t attainable_memory() {
  const int64_t available = available_memory();
  return available == 0 ? 0 : available + resident_memory();
}

int64_t machine_memory() {
  int64_t all = system_memory("MemTotal:");
  for (const GroupFiles& version : kVersions) {
    const auto most = number_in(system_path(version.mount) + "/" + version.limit);
    if (most) all = std::min(all, *most);
  }
  return all;
}

}  // namespace finetune
