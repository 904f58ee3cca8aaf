// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

// The owner of a folder, as recorded in kLockFile.
namespace finetune::checkpoint {

struct Owner {
  // Random per acquisition; a record with another token belongs to another owner.
  std::string token;
  int64_t beat = 0;  // incremented as long as the owner is alive
  int64_t pid = 0;
  int64_t process_start = 0;  // in clock ticks since boot: distinguishes reused ids
  std::string pid_namespace;  // in which `pid` is valid
  std::string host;
  std::string boot_id;
  std::string machine_id;
  int64_t since_unix = 0;  // for display, never compared
};

[[nodiscard]] Owner this_process();

[[nodiscard]] std::string to_text(const Owner& owner);
// nullopt if the text is not a record.
[[nodiscard]] std::optional<Owner> parse_owner(const std::string& text);
// Returns the record that an owner leaves on release.
[[nodiscard]] std::string released_text(const std::string& token);

// Returns "process 12 on 'host' since 2024-06-01 10:00:00 UTC".
[[nodiscard]] std::string describe(const Owner& owner);

enum class OwnerState {
  kAlive,   // a live process on this machine
  kDead,    // a dead process of this machine
  kRemote,  // on another machine or container: only its heartbeat shows whether it is alive
};
// Returns the state of `owner` as seen by `self`.
[[nodiscard]] OwnerState state_of(const Owner& owner, const Owner& self);

}  // namespace finetune::checkpoint
