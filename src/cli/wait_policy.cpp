// SPDX-License-Identifier: MIT
#include "cli/wait_policy.h"

#include <unistd.h>

#include <cstring>
#include <initializer_list>

// Before the C library is initialised: only plain loops over the memory that the kernel made.
namespace finetune::cli {
namespace {

char policy[] = "OMP_WAIT_POLICY=passive";
char* borrowed = nullptr;

bool has_name(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

char** find(char** environment, const char* name) {
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (has_name(*entry, name)) return entry;
  }
  return nullptr;
}

}  // namespace

// The kernel's array has no room for another variable, and setenv() has no effect yet: glibc takes
// this array as the environment after .preinit_array. So a variable that no library reads while it
// is loaded makes room until main().
void set_wait_policy(char** environment) {
  for (const char* by_user : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}) {
    if (find(environment, by_user) != nullptr) return;
  }
  for (const char* name : {"_", "OLDPWD", "SHLVL", "MAIL", "LOGNAME", "USER", "HOSTNAME", "SHELL",
                           "TERM", "PWD", "HOME", "PATH"}) {
    char** const entry = find(environment, name);
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
