// SPDX-License-Identifier: MIT
#include "cli/process/early_start.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "finetune/base/error.h"

namespace finetune::cli {
namespace {

// A chat template that recurses as deeply as it may needs 1.2 MiB of it, libtorch less.
constexpr rlim_t kLeastBytes = rlim_t{2} << 20;
constexpr rlim_t kUsualBytes = rlim_t{8} << 20;

constexpr char kMessage[] =
    "error: the stack limit (ulimit -Hs) is below the 2048 KiB that finetune needs; raise it, for "
    "example with 'ulimit -s 8192', and run the command again\n";

// The main thread's stack can grow to a changed limit at once. The default stack size of other
// threads was read from the limit when the process started, so it is set too.
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

// Runs before the C library is initialised: only plain loops over the kernel's memory.
char policy[] = "OMP_WAIT_POLICY=passive";
char* borrowed = nullptr;

bool has_name(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

char** find_variable(char** environment, const char* name) {
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (has_name(*entry, name)) return entry;
  }
  return nullptr;
}

}  // namespace

void require_stack() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastBytes) return;
  if (raise_soft_limit(limit)) return;
  (void)!::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(kExitFailed);
}

// Replaces a variable that no library reads while it is loaded, until main(). The kernel's array
// has no space for another variable, and setenv() has no effect yet, because glibc uses this array
// as the environment only after .preinit_array.
void set_wait_policy(char** environment) {
  for (const char* by_user : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (find_variable(environment, by_user) != nullptr) return;
  }
  for (const char* name : {"_", "OLDPWD", "SHLVL", "MAIL", "LOGNAME", "USER", "HOSTNAME", "SHELL",
                           "TERM", "PWD", "HOME", "PATH"}) {
    char** const entry = find_variable(environment, name);
    if (entry == nullptr) continue;
    borrowed = *entry;
    *entry = policy;
    return;
  }
}

void restore_environment() {
  if (borrowed == nullptr) return;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    if (*entry == policy) *entry = borrowed;
  }
}

}  // namespace finetune::cli
