// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/owner.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/text.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

std::string first_line(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Returns field 22 of /proc/<pid>/stat (start time in clock ticks), counted after the closing
// bracket of the command, which may contain any text. 0 if there is no such process, or only a
// zombie.
int64_t process_start(int64_t pid) {
  const std::string line = first_line(format_text("/proc/{}/stat", pid));
  const size_t bracket = line.rfind(')');
  if (bracket == std::string::npos) return 0;
  std::istringstream fields(line.substr(bracket + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return 0;
  for (int i = 4; i <= 22; ++i) fields >> field;
  return std::strtoll(field.c_str(), nullptr, 10);
}

std::string pid_namespace() {
  std::array<char, 64> name = {};
  const ssize_t size = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return size > 0 ? std::string(name.data(), static_cast<size_t>(size)) : std::string();
}

}  // namespace

Owner this_process() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return {.token = random_identifier(),
          .beat = 0,
          .pid = ::getpid(),
          .process_start = process_start(::getpid()),
          .pid_namespace = pid_namespace(),
          .host = host.data(),
          .boot_id = first_line("/proc/sys/kernel/random/boot_id"),
          .machine_id = first_line("/etc/machine-id"),
          .since_unix = static_cast<int64_t>(unix_seconds())};
}

std::string to_text(const Owner& owner) {
  const Json json = {{"token", owner.token},
                     {"beat", owner.beat},
                     {"pid", owner.pid},
                     {"process_start", owner.process_start},
                     {"pid_namespace", owner.pid_namespace},
                     {"host", owner.host},
                     {"boot_id", owner.boot_id},
                     {"machine_id", owner.machine_id},
                     {"since", owner.since_unix}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::optional<Owner> parse_owner(const std::string& text) {
  try {
    const Json json = parse_json(text, kLockFile);
    const JsonFields fields(json, kLockFile);
    Owner owner;
    fields.read("token", owner.token);
    fields.read("beat", owner.beat);
    fields.read("pid", owner.pid);
    fields.read("process_start", owner.process_start);
    fields.read("pid_namespace", owner.pid_namespace);
    fields.read("host", owner.host);
    fields.read("boot_id", owner.boot_id);
    fields.read("machine_id", owner.machine_id);
    fields.read("since", owner.since_unix);
    if (!is_identifier(owner.token) || owner.pid <= 0) return std::nullopt;
    return owner;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string released_text(const std::string& token) { return "released " + token + "\n"; }

std::string describe(const Owner& owner) {
  std::string text = format_text("process {} on '{}'", owner.pid, owner.host);
  const std::string since =
      utc_time_text(static_cast<double>(owner.since_unix), "%Y-%m-%d %H:%M:%S UTC");
  return since.empty() ? text : text + " since " + since;
}

OwnerState state_of(const Owner& owner, const Owner& self) {
  const bool same_position = owner.host == self.host && owner.boot_id == self.boot_id &&
                             !owner.boot_id.empty() && owner.pid_namespace == self.pid_namespace;
  if (!same_position) return OwnerState::kRemote;
  const bool alive = owner.process_start != 0 && owner.process_start == process_start(owner.pid);
  return alive ? OwnerState::kAlive : OwnerState::kDead;
}

}  // namespace finetune::checkpoint
