// SPDX-License-Identifier: MIT
#pragma once

#include <sys/quota.h>

#include <cstdint>
#include <ctime>

namespace finetune {

// Returns the bytes that the user and group quotas of this process leave on the file system of an
// open file; UINT64_MAX if there is no quota, if the kernel does not report it (before Linux 5.14,
// network file systems), or if quotas do not apply to this process (root).
[[nodiscard]] uint64_t quota_bytes_left(int descriptor);

// The same for one quota as reported by quotactl(2), at a time in seconds since 1970: up to the
// hard limit, and 0 after the grace period of an exceeded soft limit.
[[nodiscard]] uint64_t bytes_left(const dqblk& quota, std::time_t now);

}  // namespace finetune
