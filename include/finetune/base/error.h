// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

namespace finetune {

// Exit codes of the contract (README, "Exit codes").
inline constexpr int kExitFinished = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoValidCheckpoint = 3;
inline constexpr int kExitCheckpointsFailed = 4;
inline constexpr int kExitBusy = 5;
inline constexpr int kExitStoppedEarly = 75;

// What went wrong, as far as a caller or a script may act on it.
enum class ErrorKind {
  kUsage,       // wrong command line
  kConfig,      // wrong configuration: key, value or contradiction
  kData,        // data, model or tokenizer files that cannot be used
  kCheckpoint,  // checkpoints are there but none is valid
  kBusy,        // another process holds the output folder
  kDevice,      // the device is missing or out of memory
  kIo,          // the file system refused (permission, space, fault)
};

// The only exception that users cause. Its message is one sentence with what is wrong, where
// (file:line, key or step) and what to do next; nothing else is printed.
class Error : public std::runtime_error {
 public:
  // `system_error`: the errno of a kIo, if there is one.
  Error(ErrorKind kind, const std::string& message, int system_error = 0)
      : std::runtime_error(message), kind_(kind), system_error_(system_error) {}

  [[nodiscard]] ErrorKind kind() const { return kind_; }
  [[nodiscard]] int system_error() const { return system_error_; }
  [[nodiscard]] int exit_code() const;

 private:
  ErrorKind kind_;
  int system_error_;
};

// Thrown at the points where a phase gives way to SIGTERM, SIGINT or SIGUSR1 when there is nothing
// to save (start-up, tokenising). Ends in exit code 75.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(const std::string& phase) : std::runtime_error(phase) {}
};

namespace internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);
}  // namespace internal

// For our own mistakes only; never reachable from input. Throws std::logic_error.
#define FT_CHECK(condition, message)                                                 \
  do {                                                                               \
    if (!(condition)) {                                                              \
      ::finetune::internal::check_failed(#condition, __FILE__, __LINE__, (message)); \
    }                                                                                \
  } while (false)

}  // namespace finetune
