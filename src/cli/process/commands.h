// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <vector>

// One function per command; each takes the words after it and returns the exit code.
namespace finetune::cli {

using Arguments = std::vector<std::string>;

int run(const Arguments& arguments);  // selects the command

// Prepares this process, runs the command and exits with its code. `name`: how the user called the
// program (argv[0]), or nullptr. Everything of main() that a fork of a test needs, too.
[[noreturn]] void run_as_program(const char* name, const Arguments& arguments);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);
};
[[nodiscard]] std::span<const Command> all_commands();

struct ExitCode {
  int code;
  const char* meaning;
};
inline constexpr ExitCode kExitCodes[] = {
    {0, "finished"},
    {1, "failed"},
    {2, "wrong command line or configuration"},
    {3, "no valid checkpoint among those there"},
    {4, "finished without a checkpoint"},
    {5, "another process owns the output folder"},
    {75, "stopped early with everything saved: run the same command again"},
};

int train_command(const Arguments& arguments);
int evaluate_command(const Arguments& arguments);
int predict_command(const Arguments& arguments);
int export_command(const Arguments& arguments);
int tokenizer_command(const Arguments& arguments);
int prepare_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int status_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int checkpoints_command(const Arguments& arguments);
int verify_resume_command(const Arguments& arguments);
int config_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

// Returns the output of `finetune COMMAND [words...] --help`.
[[nodiscard]] std::string help_of(const Command& command, Arguments words);

// Returns the manual page in man(7) macros, generated from the help of all commands and the list of
// keys.
[[nodiscard]] std::string manual_page();

}  // namespace finetune::cli
