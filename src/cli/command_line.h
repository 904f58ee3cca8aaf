// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "finetune/config/load.h"

namespace CLI {
class App;
}

namespace finetune::cli {

// The configuration of a command that may run for hours. Applies on_sighup.
[[nodiscard]] LoadedConfig load_long_run(const ConfigWords& words);

// Overrides for a run that only tries the user's configuration: no limit of a session ends it, and
// no command of the user's is run at its end.
inline const Arguments kUnlimited = {"--session_hours=null",     "--session_deadline=null",
                                     "--session_clock=null",     "--unit_budget=null",
                                     "--on_finish_command=null", "--on_interrupt_command=null",
                                     "--on_failure_command=null"};

// A command's own options, parsed by CLI11, among words that it passes on: a configuration file and
// keys, of which config reads some 200 with their types (read_overrides()), or the texts of
// `predict`, which may begin with a dash. Declare the options, then parse; an option that is not
// given leaves its variable as it is. The variables must outlive parse().
class CommandLine {
 public:
  // `help`: of the command; `more_help` is printed after it.
  CommandLine(std::string command, std::string help, std::string (*more_help)() = nullptr);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void flag(const char* name, bool& value);          // "--restart"
  void value(const char* name, std::string& value);  // "--checkpoint auto"
  void value(const char* name, std::optional<std::string>& value);
  void number(const char* name, int64_t& value);  // above 0
  void number(const char* name, std::optional<int64_t>& value);
  void number(const char* name, std::optional<double>& value);
  void truth(const char* name, std::optional<bool>& value);  // "--do_sample true"
  // False where --help was asked for and is printed. Throws Error(kUsage).
  [[nodiscard]] bool parse(const Arguments& arguments);

  [[nodiscard]] bool has(const char* name) const;
  // The words that are no option of the command, in their order.
  [[nodiscard]] const Arguments& rest() const { return rest_; }
  // The same as "[CONFIG] [--key value ...]", the file anywhere.
  [[nodiscard]] ConfigWords config() const;

 private:
  std::string command_;
  std::string help_;
  std::string (*more_help_)();
  std::unique_ptr<CLI::App> app_;
  Arguments rest_;
};

}  // namespace finetune::cli
