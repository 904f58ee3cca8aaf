// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/process/commands.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"

namespace CLI {
class App;
}

namespace finetune::cli {

// Loads the configuration of a command that may run for hours, and applies on_sighup.
[[nodiscard]] LoadedConfig load_long_run(const ConfigWords& words);

// Validates; where that fails, the error also names data files, models and tokenizers that are not
// there.
void validate_with_inputs(const LoadedConfig& config, Purpose purpose);
// What `finetune train` does with a configuration: it only evaluates where do_train is false and
// do_eval is true.
[[nodiscard]] Purpose purpose_of_training(const TrainingArgs& args);

// Overrides for trial runs of the user's configuration: no session limit ends them, and no user
// command runs at their end.
inline const Arguments kUnlimited = {"--session_hours=null",     "--session_deadline=null",
                                     "--session_clock=null",     "--unit_budget=null",
                                     "--on_finish_command=null", "--on_interrupt_command=null",
                                     "--on_failure_command=null"};

// A command's own options, parsed by CLI11. Other words are passed through: a configuration file
// and keys, of which config reads some 200 with their types (read_overrides()), or the texts of
// `predict`, which may begin with a dash. Declare the options, then parse; an option that is not
// given leaves its variable unchanged. The variables must outlive parse().
class CommandLine {
 public:
  // `help`: the command's help; `more_help` is printed after it.
  CommandLine(std::string command, std::string help, std::string (*more_help)() = nullptr);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void flag(const char* name, bool& value);          // "--restart"
  void value(const char* name, std::string& value);  // "--checkpoint auto"
  void value(const char* name, std::optional<std::string>& value);
  void number(const char* name, int64_t& value);  // positive
  void number(const char* name, std::optional<int64_t>& value);
  void number(const char* name, std::optional<double>& value);
  void truth(const char* name, std::optional<bool>& value);  // "--do_sample true"
  // Returns false if --help was given and printed. Throws Error(kUsage).
  [[nodiscard]] bool parse(const Arguments& arguments);

  [[nodiscard]] bool has(const char* name) const;
  // Returns the words that are not options of the command, in their order.
  [[nodiscard]] const Arguments& rest() const { return rest_; }
  // Returns the same words parsed as "[CONFIG] [--key value ...]", with the file at any position.
  [[nodiscard]] ConfigWords config() const;

 private:
  std::string command_;
  std::string help_;
  std::string (*more_help_)();
  std::unique_ptr<CLI::App> app_;
  Arguments rest_;
};

}  // namespace finetune::cli
