// SPDX-License-Identifier: MIT
#include "cli/stack_limit.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "finetune/base/error.h"

namespace finetune::cli {
namespace {

// libtorch's and our own largest frames together take less than half of it.
constexpr rlim_t kLeastBytes = rlim_t{1} << 20;
constexpr rlim_t kUsualBytes = rlim_t{8} << 20;

constexpr char kMessage[] =
    "error: the stack limit (ulimit -Hs) is below the 1024 KiB that finetune needs; raise it, for "
    "example with 'ulimit -s 8192', and run the command again\n";

// What the kernel lets the main thread grow to follows the limit at once. The size of other
// threads' stacks was read from it when the process started.
bool raise_soft_limit(rlimit limit) {
  if (limit.rlim_max < kLeastBytes) return false;
  limit.rlim_cur = limit.rlim_max < kUsualBytes ? limit.rlim_max : kUsualBytes;
  if (::setrlimit(RLIMIT_STACK, &limit) != 0) return false;
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) != 0) return false;
  const bool is_set = ::pthread_attr_setstacksize(&attributes, limit.rlim_cur) == 0 &&
                      ::pthread_setattr_default_np(&attributes) == 0;
  ::pthread_attr_destroy(&attributes);
  return is_set;
}

}  // namespace

void require_stack() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastBytes) return;
  if (raise_soft_limit(limit)) return;
  (void)!::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(kExitFailed);
}

}  // namespace finetune::cli
