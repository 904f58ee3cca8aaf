// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "finetune/config/load.h"

namespace finetune::cli {

// The configuration of a command that may run for hours. Applies on_sighup.
[[nodiscard]] LoadedConfig load_long_run(const ConfigWords& words);

// Overrides for a run that only tries the user's configuration: no limit of a session ends it, and
// no command of the user's is run at its end.
inline const Arguments kUnlimited = {"--session_hours=null",     "--session_deadline=null",
                                     "--session_clock=null",     "--unit_budget=null",
                                     "--on_finish_command=null", "--on_interrupt_command=null",
                                     "--on_failure_command=null"};

// Takes the flags that are the command's own out of `arguments` first; the rest is a configuration
// file and keys. An option of the command itself is given as "--name" or "--name value".
class ArgumentReader {
 public:
  explicit ArgumentReader(Arguments arguments) : arguments_(std::move(arguments)) {}

  [[nodiscard]] bool take_flag(const std::string& name);  // "--restart"
  // "--checkpoint auto" or "--checkpoint=auto"; Error(kUsage) where the value is missing.
  [[nodiscard]] std::optional<std::string> take_value(const std::string& name);
  [[nodiscard]] std::optional<int64_t> take_number(const std::string& name);
  [[nodiscard]] bool asks_for_help() const;
  // What is left: "[CONFIG] [--key value ...]", the file anywhere.
  [[nodiscard]] ConfigWords config(const std::string& command) const;
  [[nodiscard]] const Arguments& rest() const { return arguments_; }

 private:
  Arguments arguments_;
};

}  // namespace finetune::cli
