// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Host memory in bytes; 0 where the system does not report it. The limits of the process's control
// groups (v1 and v2, the group itself and all groups above it) count, and the file cache of a group
// counts as free, because the kernel reclaims it. Tests set FINETUNE_TEST_MEMORY_ROOT to a folder
// that replaces "/" in "/proc/meminfo", "/proc/self/cgroup" and "/sys/fs/cgroup".

// Mapped pages of files that count as this process's own: the code that a training runs. The kernel
// may map many more of them (Linux 6.18 maps whole large folios: 40 MiB of libtorch become 130 when
// they were read from a cold disk). These are clean, and the kernel reclaims them at need.
inline constexpr int64_t kMappedCode = int64_t{40} << 20;

// Memory that only this process can free: its anonymous and shared pages (RssAnon + RssShmem of
// /proc/self/status) without mapped pages of files.
[[nodiscard]] int64_t resident_memory();
// Mapped pages of files beyond kMappedCode, which are part of what the system reports as resident.
[[nodiscard]] int64_t reclaimable_resident_memory();
// What it may still take.
[[nodiscard]] int64_t available_memory();
// The two together.
[[nodiscard]] int64_t attainable_memory();
// All memory of the machine, within the limit of the outermost visible group.
[[nodiscard]] int64_t machine_memory();

}  // namespace finetune
