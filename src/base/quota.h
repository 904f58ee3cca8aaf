// SPDX-License-Identifier: MIT
#pragma once

#include <sys/quota.h>

#include <cstdint>
#include <ctime>

namespace finetune {

// Bytes that the user and group quotas of this process leave on the file system of an open file;
// UINT64_MAX if there is none, if the kernel does not report it (before Linux 5.14, network file
// systems), or if quotas do not apply to this process (root).
[[nodiscard]] uint64_t quota_bytes_left(int descriptor);

// The same of one quota as quotactl(2) reports it, at a time in seconds since 1970: up to the hard
// limit, and nothing once the grace period of an exceeded soft limit is over.
[[nodiscard]] uint64_t bytes_left(const dqblk& quota, std::time_t now);

}  // namespace finetune
