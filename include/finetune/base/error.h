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

// Categories of errors that a caller or script can react to.
enum class ErrorKind {
  kUsage,       // wrong command line
  kConfig,      // wrong configuration: key, value or contradiction
  kData,        // data, model or tokenizer files that cannot be used
  kCheckpoint,  // there are checkpoints but none is valid
  kBusy,        // another process owns the output folder
  kDevice,      // the device is missing or out of memory
  kIo,          // the file system failed (permission, space, fault)
};

// The only exception that users can cause. Its message is one sentence: the problem, where it is
// (file:line, key or step), and what to do; nothing else is printed.
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

// Thrown when a phase in which there is nothing to save (startup, tokenisation) is interrupted by
// SIGTERM, SIGINT or SIGUSR1. Ends in exit code 75.
class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(const std::string& phase) : std::runtime_error(phase) {}
};

namespace internal {
[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               const std::string& message);
}  // namespace internal

// For programming errors only; input must never reach it. Throws std::logic_error.
#define FT_CHECK(condition, message)                                                 \
  do {                                                                               \
    if (!(condition)) {                                                              \
      ::finetune::internal::check_failed(#condition, __FILE__, __LINE__, (message)); \
    }                                                                                \
  } while (false)

}  // namespace finetune
