// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

// The owner of a folder: the record in kLockFile.
namespace finetune::checkpoint {

struct Owner {
  std::string token;  // random, of this hold; a record with another one is another's
  int64_t beat = 0;   // grows as long as the owner lives
  int64_t pid = 0;
  int64_t process_start = 0;  // in clock ticks since boot: distinguishes reused ids
  std::string pid_namespace;  // where the id means something
  std::string host;
  std::string boot_id;
  std::string machine_id;
  int64_t since_unix = 0;  // for display, never compared
};

[[nodiscard]] Owner this_process();

[[nodiscard]] std::string to_text(const Owner& owner);
// nullopt if the text is not a record.
[[nodiscard]] std::optional<Owner> parse_owner(const std::string& text);
// The record that an owner leaves when it is done.
[[nodiscard]] std::string released_text(const std::string& token);

// "process 12 on 'host' since 2024-06-01 10:00:00 UTC".
[[nodiscard]] std::string describe(const Owner& owner);

enum class OwnerState {
  kAlive,   // a process that this machine sees
  kDead,    // was one
  kRemote,  // of another machine or container: only its heartbeat shows whether it lives
};
// What `self` knows about `owner`.
[[nodiscard]] OwnerState state_of(const Owner& owner, const Owner& self);

}  // namespace finetune::checkpoint
