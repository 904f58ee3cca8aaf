// SPDX-License-Identifier: MIT
#include "base/quota.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "finetune/base/clock.h"

namespace finetune {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLimitUnit = 1024;  // bytes of dqb_bhardlimit and dqb_bsoftlimit

}  // namespace

uint64_t bytes_left(const dqblk& quota, std::time_t now) {
  const bool is_known = (quota.dqb_valid & QIF_BLIMITS) != 0 && (quota.dqb_valid & QIF_SPACE) != 0;
  if (!is_known) return kUnlimited;
  const uint64_t used = quota.dqb_curspace;
  const uint64_t soft = quota.dqb_bsoftlimit * kLimitUnit;
  const bool has_grace_time = (quota.dqb_valid & QIF_BTIME) != 0 && quota.dqb_btime != 0;
  if (soft > 0 && used > soft && has_grace_time && std::cmp_greater(now, quota.dqb_btime)) return 0;
  const uint64_t hard = quota.dqb_bhardlimit * kLimitUnit;
  if (hard == 0) return kUnlimited;
  return hard > used ? hard - used : 0;
}

uint64_t quota_bytes_left(int descriptor) {
  uint64_t left = kUnlimited;
#ifdef SYS_quotactl_fd
  if (::geteuid() == 0) return left;
  const auto ask = [&](int type, unsigned id) {
    dqblk quota = {};
    if (::syscall(SYS_quotactl_fd, descriptor, QCMD(Q_GETQUOTA, type), id, &quota) == 0) {
      left = std::min(left, bytes_left(quota, static_cast<int64_t>(unix_seconds())));
    }
  };
  ask(USRQUOTA, ::geteuid());
  ask(GRPQUOTA, ::getegid());
#else
  (void)descriptor;
#endif
  return left;
}

}  // namespace finetune
