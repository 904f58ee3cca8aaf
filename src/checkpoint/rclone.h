// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/local_http.h"

namespace finetune::checkpoint {

// A process of rclone (`rclone rcd`) that serves this one over the loopback, with a password of its
// own. It is started by the first call, again after its end, and killed with this object or the
// thread that started it. Thread-safe.
class Rclone {
 public:
  using Environment = std::map<std::string, std::string>;

  // `more`: variables that the process gets in addition to those of this one.
  explicit Rclone(Environment more);
  ~Rclone();
  Rclone(const Rclone&) = delete;
  Rclone& operator=(const Rclone&) = delete;

  // Calls a function of rclone's remote control (https://rclone.org/rc/). Throws Error(kIo) that
  // begins with `what`, "cannot list 's3://bucket/a'"; Error(kConfig) where there is no rclone.
  nlohmann::ordered_json call(const std::string& function, const nlohmann::ordered_json& arguments,
                              const std::string& what);
  // Requests the bytes of an object, all or those from `offset` to its end; `fs` and `remote` as
  // rclone has them.
  [[nodiscard]] std::unique_ptr<LocalHttpRequest> get(const std::string& fs,
                                                      const std::string& remote,
                                                      std::optional<uint64_t> offset,
                                                      const std::string& what);
  // Starts the process on this thread if it does not run.
  void ensure() { (void)running_port(); }
  // Kills the process, so that all calls on other threads fail; the next one starts it again.
  void stop_all();
  // A folder for files on their way to rclone; deleted with this object.
  [[nodiscard]] std::string scratch_folder();

 private:
  void ensure_running();  // requires the mutex
  void start();
  void stop();
  [[nodiscard]] std::string headers() const;
  [[nodiscard]] uint16_t running_port();

  const Environment more_;
  const std::string password_;
  std::mutex mutex_;  // guards the members below
  pid_t process_ = 0;
  uint16_t port_ = 0;
  bool has_known_version_ = false;
  std::string scratch_;
};

// The error that rclone's reason means, for `what`.
[[noreturn]] void throw_rclone_error(const std::string& what, const std::string& reason,
                                     int status);

}  // namespace finetune::checkpoint
