// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Host memory in bytes; 0 where the system does not report it. The limits of the process's control
// groups (v1 and v2, the group itself and all groups above it) count, and the file cache of a group
// counts as free, because the kernel reclaims it. Tests set FINETUNE_TEST_MEMORY_ROOT to a folder
// that replaces "/" in "/proc/meminfo", "/proc/self/cgroup" and "/sys/fs/cgroup".

// What this process occupies.
[[nodiscard]] int64_t resident_memory();
// What it may still take.
[[nodiscard]] int64_t available_memory();
// The two together.
[[nodiscard]] int64_t attainable_memory();
// All memory of the machine, within the limit of the outermost visible group.
[[nodiscard]] int64_t machine_memory();

}  // namespace finetune
