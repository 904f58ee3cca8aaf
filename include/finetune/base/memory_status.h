// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Host memory in bytes; 0 if the system does not report it. Respects the limits of the process's
// control groups (v1 and v2, the group itself and all groups above it); the file cache of a group
// counts as free, because the kernel reclaims it. Tests set FINETUNE_TEST_MEMORY_ROOT to a folder
// that replaces "/" in "/proc/meminfo", "/proc/self/cgroup" and "/sys/fs/cgroup".

// The number of mapped file bytes that count as this process's memory: the code that a training
// runs. The kernel may map many more (Linux 6.18 maps whole large folios: 40 MiB of libtorch become
// 130 if they were read from a cold disk). These pages are clean, and the kernel reclaims them on
// demand.
inline constexpr int64_t kMappedCode = int64_t{40} << 20;

// Adds `bytes` (may be negative) to the mapped file pages that count as this process's memory, for
// data that a training reads in every step.
void count_mapped_memory(int64_t bytes);

// Returns the memory that only this process can free: its anonymous and shared pages (RssAnon +
// RssShmem of /proc/self/status), without mapped file pages.
[[nodiscard]] int64_t resident_memory();
// Returns the most memory that this program had resident since it began, without the mapped file
// pages that are reclaimable now. (What getrusage() reports includes the program that started it.)
[[nodiscard]] int64_t peak_resident_memory();
// Returns the mapped file pages beyond those that count as this process's memory, which the system
// includes in resident memory.
[[nodiscard]] int64_t reclaimable_resident_memory();
// Returns the memory that this process may still allocate.
[[nodiscard]] int64_t available_memory();
// Returns resident_memory() + available_memory().
[[nodiscard]] int64_t attainable_memory();
// Returns the machine's memory, within the limit of the outermost visible group.
[[nodiscard]] int64_t machine_memory();

}  // namespace finetune
