// SPDX-License-Identifier: MIT
// LD_PRELOAD for the release binary: lets the n-th call of some functions go wrong.
//
//   FINETUNE_FAULT=CALLS@N[+COUNT]=ACTION
//     CALLS   names joined by '|', or `change`: every function here that changes files
//     N       from 1; COUNT (1): how many from there on, 0 for all
//     ACTION  a number: that errno; `kill`: SIGKILL; `signal:NUMBER`; `short`: half of a write
//   FINETUNE_FAULT_FOLDER  only calls on paths that begin so count (not for malloc)
//   FINETUNE_FAULT_ARM     counting begins when a path that holds this is opened
//   FINETUNE_FAULT_AFTER   counting begins when this path exists
//   FINETUNE_FAULT_FORK    only in the n-th child of the program, from 1
//   FINETUNE_FAULT_LOG     file that gets a line for each call that went wrong
//   FINETUNE_FAULT_CLOCK   seconds that the clock jumps by at every 8th look (real time only)
//   FINETUNE_FAULT_COUNT   file that gets the number of calls that counted
//   FINETUNE_FAULT_COMMITS file that gets "PATH SECONDS" (monotonic clock) when a checkpoint has been
//                          renamed to its final name and the folder that contains it was synced
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);

enum Action { NONE, FAIL, KILL, SIGNAL, SHORT };

static struct {
  int ready;
  char calls[128];
  long from, count;
  enum Action action;
  int number;
  const char* folder;
  const char* arm;
  const char* after;
  const char* log;
  long fork;
  long jump;
} fault;
static atomic_long seen;
static atomic_int armed;
static atomic_long looks;
static long forks;        // of this process
static long fork_number;  // among its parent's

static void set_rule(const char* text) {
  fault.ready = 0;
  const char* at = text ? strchr(text, '@') : NULL;
  const char* equals = at ? strchr(at, '=') : NULL;
  if (equals == NULL) return;
  snprintf(fault.calls, sizeof fault.calls, "|%.*s|", (int)(at - text), text);
  fault.from = atol(at + 1);
  const char* plus = strchr(at, '+');
  fault.count = plus ? atol(plus + 1) : 1;
  const char* action = equals + 1;
  fault.action = FAIL;
  if (!strcmp(action, "kill")) fault.action = KILL;
  if (!strcmp(action, "short")) fault.action = SHORT;
  if (!strncmp(action, "signal:", 7)) fault.action = SIGNAL;
  fault.number = atoi(fault.action == SIGNAL ? action + 7 : action);
  fault.ready = 1;
}

__attribute__((constructor)) static void set_up(void) {
  fault.folder = getenv("FINETUNE_FAULT_FOLDER");
  fault.arm = getenv("FINETUNE_FAULT_ARM");
  fault.after = getenv("FINETUNE_FAULT_AFTER");
  fault.log = getenv("FINETUNE_FAULT_LOG");
  fault.fork = getenv("FINETUNE_FAULT_FORK") ? atol(getenv("FINETUNE_FAULT_FORK")) : 0;
  armed = fault.arm == NULL && fault.after == NULL;
  fault.jump = getenv("FINETUNE_FAULT_CLOCK") ? atol(getenv("FINETUNE_FAULT_CLOCK")) : 0;
  set_rule(getenv("FINETUNE_FAULT"));
}

// For a program that has the library loaded and forks: another rule from here on, and how many
// calls counted until here.
long finetune_fault_set(const char* rule, const char* folder) {
  const long before = seen;
  fault.folder = strdup(folder);
  armed = 1;
  seen = 0;
  set_rule(rule);
  return before;
}

__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("FINETUNE_FAULT_COUNT");
  FILE* file = path ? fopen(path, "w") : NULL;
  if (file == NULL) return;
  fprintf(file, "%ld\n", (long)seen);
  fclose(file);
}

// The binary ends by _exit(), which runs no destructors.
void _exit(int code) {
  tell();
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

static int counts(const char* call, int changes, const char* path) {
  char word[32];
  if (!fault.ready || (fault.fork && fork_number != fault.fork)) return 0;
  if (!armed && fault.after) {
    const int before = errno;
    if (access(fault.after, F_OK) == 0) armed = 1;
    errno = before;
  }
  if (!armed) return 0;
  if (path && fault.folder && strncmp(path, fault.folder, strlen(fault.folder)) != 0) return 0;
  if (changes && strstr(fault.calls, "|change|")) return 1;
  snprintf(word, sizeof word, "|%s|", call);
  return strstr(fault.calls, word) != NULL;
}

static void note(const char* call) {
  char line[64];
  const int file = fault.log ? (int)syscall(SYS_openat, AT_FDCWD, fault.log,
                                            O_WRONLY | O_CREAT | O_APPEND, 0644)
                             : -1;
  if (file < 0) return;
  const int size = snprintf(line, sizeof line, "%s in process %d\n", call, (int)getpid());
  (void)!syscall(SYS_write, file, line, (size_t)size);
  syscall(SYS_close, file);
}

// What is to happen to this call; kills and signals have happened when it returns.
static enum Action strike(const char* call, int changes, const char* path) {
  if (!counts(call, changes, path)) return NONE;
  const long number = ++seen;
  if (number < fault.from || (fault.count && number >= fault.from + fault.count)) return NONE;
  note(call);
  if (fault.action == KILL) raise(SIGKILL);
  if (fault.action == SIGNAL) {
    raise(fault.number);
    return NONE;
  }
  if (fault.action == FAIL) errno = fault.number;
  return fault.action;
}

static const char* path_of(int descriptor, char* buffer, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, buffer, size - 1);
  buffer[length < 0 ? 0 : length] = '\0';
  return buffer;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_write(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0; }

static void arm_by(const char* path) {
  if (!armed && fault.arm && strstr(path, fault.arm)) armed = 1;
}

#define OPEN(name)                                                  \
  int name(const char* path, int flags, ...) {                      \
    va_list list;                                                   \
    va_start(list, flags);                                          \
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                   \
    arm_by(path);                                                   \
    if (strike("open", is_write(flags), path) == FAIL) return -1;   \
    return NEXT(name)(path, flags, mode);                           \
  }
OPEN(open)
OPEN(open64)

ssize_t write(int descriptor, const void* data, size_t size) {
  char path[4096];
  if (fault.ready && descriptor > 2) {
    const enum Action action = strike("write", 1, path_of(descriptor, path, sizeof path));
    if (action == FAIL) return -1;
    if (action == SHORT && size > 1) size /= 2;
  }
  return NEXT(write)(descriptor, data, size);
}

ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  char path[4096];
  if (fault.ready && descriptor > 2 &&
      strike("write", 1, path_of(descriptor, path, sizeof path)) == FAIL) {
    return -1;
  }
  return NEXT(writev)(descriptor, parts, count);
}

ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  char path[4096];
  if (fault.ready) {
    const enum Action action = strike("pread", 0, path_of(descriptor, path, sizeof path));
    if (action == FAIL) return -1;
    if (action == SHORT && size > 1) size /= 2;
  }
  return NEXT(pread)(descriptor, data, size, offset);
}

ssize_t pread64(int descriptor, void* data, size_t size, off_t offset) {
  return pread(descriptor, data, size, offset);
}

#define DESCRIPTOR(name, arguments, values)                                 \
  int name arguments {                                                      \
    char path[4096];                                                        \
    if (fault.ready && descriptor > 2 &&                                    \
        strike(#name, 1, path_of(descriptor, path, sizeof path)) == FAIL) { \
      return -1;                                                            \
    }                                                                       \
    return NEXT(name) values;                                               \
  }
DESCRIPTOR(ftruncate, (int descriptor, off_t size), (descriptor, size))
DESCRIPTOR(close, (int descriptor), (descriptor))
DESCRIPTOR(flock, (int descriptor, int operation), (descriptor, operation))
DESCRIPTOR(shutdown, (int descriptor, int how), (descriptor, how))

#define TRANSFER(name, arguments, values)                                   \
  ssize_t name arguments {                                                  \
    char path[4096];                                                        \
    if (fault.ready && descriptor > 2 &&                                    \
        strike(#name, 0, path_of(descriptor, path, sizeof path)) == FAIL) { \
      return -1;                                                            \
    }                                                                       \
    return NEXT(name) values;                                               \
  }
TRANSFER(read, (int descriptor, void* data, size_t size), (descriptor, data, size))
TRANSFER(send, (int descriptor, const void* data, size_t size, int flags),
         (descriptor, data, size, flags))
TRANSFER(recv, (int descriptor, void* data, size_t size, int flags),
         (descriptor, data, size, flags))
TRANSFER(lseek, (int descriptor, off_t offset, int from), (descriptor, offset, from))

pid_t fork(void) {
  const long number = ++forks;
  const pid_t child = NEXT(fork)();
  if (child == 0) {
    fork_number = number;
    forks = 0;
  }
  return child;
}

// Checkpoints that have their final name and wait for the sync of their folder.
enum { MOST_RENAMED = 8 };
static char renamed[MOST_RENAMED][1024];
static pthread_mutex_t renamed_lock = PTHREAD_MUTEX_INITIALIZER;

static int note_rename(const char* to, int result) {
  const char* name = strrchr(to, '/');
  if (result != 0 || name == NULL || strncmp(name, "/checkpoint-", 12) != 0) return result;
  pthread_mutex_lock(&renamed_lock);
  for (int i = 0; i < MOST_RENAMED; ++i) {
    if (renamed[i][0] != '\0') continue;
    snprintf(renamed[i], sizeof renamed[i], "%s", to);
    break;
  }
  pthread_mutex_unlock(&renamed_lock);
  return result;
}

static void note_sync(const char* folder) {
  const char* commits = getenv("FINETUNE_FAULT_COMMITS");
  if (commits == NULL) return;
  const size_t length = strlen(folder);
  struct timespec now;
  NEXT(clock_gettime)(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&renamed_lock);
  for (int i = 0; i < MOST_RENAMED; ++i) {
    char* path = renamed[i];
    if (strncmp(path, folder, length) != 0 || strrchr(path, '/') != path + length) continue;
    FILE* file = fopen(commits, "a");
    if (file != NULL) {
      fprintf(file, "%s %ld.%09ld\n", path, (long)now.tv_sec, now.tv_nsec);
      fclose(file);
    }
    path[0] = '\0';
  }
  pthread_mutex_unlock(&renamed_lock);
}

int fsync(int descriptor) {
  char path[4096];
  path_of(descriptor, path, sizeof path);
  if (fault.ready && descriptor > 2 && strike("fsync", 1, path) == FAIL) return -1;
  const int result = NEXT(fsync)(descriptor);
  if (result == 0) note_sync(path);
  return result;
}

#define PATH(name, arguments, values)              \
  int name arguments {                             \
    if (strike(#name, 1, path) == FAIL) return -1; \
    return NEXT(name) values;                      \
  }
PATH(mkdir, (const char* path, mode_t mode), (path, mode))
PATH(unlink, (const char* path), (path))
PATH(rmdir, (const char* path), (path))
PATH(truncate, (const char* path, off_t size), (path, size))

int rename(const char* path, const char* to) {
  if (strike("rename", 1, path) == FAIL) return -1;
  return note_rename(to, NEXT(rename)(path, to));
}

int renameat2(int a, const char* path, int b, const char* to, unsigned flags) {
  if (strike("renameat2", 1, path) == FAIL) return -1;
  return note_rename(to, NEXT(renameat2)(a, path, b, to, flags));
}

int statvfs(const char* path, struct statvfs* status) {
  if (strike("statvfs", 0, path) == FAIL) return -1;
  return NEXT(statvfs)(path, status);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int result = NEXT(clock_gettime)(clock, time);
  if (fault.jump && clock == CLOCK_REALTIME && result == 0) {
    time->tv_sec += fault.jump * (long)(++looks / 8);
  }
  return result;
}

time_t time(time_t* where) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (where) *where = now.tv_sec;
  return now.tv_sec;
}

void* malloc(size_t size) {
  if (fault.ready && strike("malloc", 0, NULL) == FAIL) return NULL;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  if (fault.ready && strike("malloc", 0, NULL) == FAIL) return NULL;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  if (fault.ready && strike("malloc", 0, NULL) == FAIL) return NULL;
  return __libc_realloc(old, size);
}
