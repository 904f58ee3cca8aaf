// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iostream>

#include "cli/process/commands.h"
#include "cli/process/launch.h"
#include "cli/process/outcome.h"
#include "cli/process/standard_output.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/nearest.h"
#include "finetune/base/printable.h"
#include "finetune/base/version.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/torch_build.h"
#include "finetune/tensor/tpu.h"

namespace finetune::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", "train, or resume from the newest valid checkpoint", train_command},
    {"evaluate", "evaluate the trained model or another one on validation_file", evaluate_command},
    {"predict", "fill masks, classify, tag, choose or answer with a trained model",
     predict_command},
    {"export", "write a merged model for other programs", export_command},
    {"tokenizer", "train a tokenizer; encode and decode text", tokenizer_command},
    {"prepare", "tokenise data, or make pretraining examples, beforehand", prepare_command},
    {"plan", "predict memory and time before training", plan_command},
    {"checkpoints", "list a run's checkpoints and whether each is valid", checkpoints_command},
    {"status", "print a run's state, progress and remaining time", status_command},
    {"report", "write an HTML report of one or more runs: curves, sessions, cost", report_command},
    {"verify-resume", "test that your configuration resumes bit for bit", verify_resume_command},
    {"config", "write, check and describe configurations", config_command},
    {"doctor", "print devices, memory, libraries, disk and problems", doctor_command},
    {"completion", "print a completion script for bash, zsh or fish, or the manual page",
     completion_command},
};

// Names of commands in other programs, with what to write here.
struct OtherCommand {
  std::string_view name;
  const char* advice;
};
constexpr OtherCommand kOtherCommands[] = {
    {"resume", "a run resumes by its own command: finetune train CONFIG"},
    {"continue", "a run resumes by its own command: finetune train CONFIG"},
    {"restart", "finetune train CONFIG --restart begins again at step 0"},
    {"run", "finetune train CONFIG trains"},
    {"fit", "finetune train CONFIG trains"},
    {"pretrain", "finetune train CONFIG trains; 'model_type' in it begins a new model"},
    {"sft", "finetune train CONFIG trains; its key is 'task: sft'"},
    {"dpo", "finetune train CONFIG trains; its key is 'task: dpo'"},
    {"orpo", "finetune train CONFIG trains; its key is 'task: orpo'"},
    {"kto", "finetune train CONFIG trains; its key is 'task: kto'"},
    {"eval", "finetune evaluate CONFIG evaluates"},
    {"test", "finetune evaluate CONFIG evaluates; 'finetune config check CONFIG' checks the keys"},
    {"chat", "finetune predict MODEL_DIR --chat answers"},
    {"generate", "finetune predict MODEL_DIR writes answers and predictions"},
    {"inference", "finetune predict MODEL_DIR writes answers and predictions"},
    {"merge", "finetune export RUN OUT writes a merged model"},
    {"init", "finetune config init writes a configuration"},
    {"check", "finetune config check CONFIG checks a configuration"},
    {"validate", "finetune config check CONFIG checks a configuration"},
    {"example", "finetune config example NAME writes an example"},
    {"env", "finetune doctor prints devices, memory and libraries"},
    {"version", "finetune --version prints it"},
};

void print_help() {
  std::cout << "finetune " << kVersion
            << ": fine-tunes and pretrains transformer language models; an interrupted run resumes "
               "bit for bit\n\n"
               "usage: finetune COMMAND [ARGUMENTS]\n\ncommands:\n";
  for (const Command& command : kCommands) {
    std::cout << "  " << command.name << std::string(16 - std::string(command.name).size(), ' ')
              << command.summary << "\n";
  }
  std::cout
      << "\n'finetune COMMAND --help' describes each.\n"
         "exit codes: 0 finished, 1 failed, 2 wrong command line or configuration, 3 there are "
         "checkpoints, but none is valid,\n4 finished without a checkpoint, 5 another process "
         "owns the output folder, 6 running (only 'status'), 75 stopped early with everything "
         "saved\n";
}

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

int run(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    print_help();
    return arguments.empty() ? kExitUsage : kExitFinished;
  }
  if (arguments[0] == "--version") {
    const std::string tpu = has_tpu() ? "; " + tpu_summary() : "";
    std::cout << "finetune " << kVersion << " (for torch " << torch_built_for() << tpu << ")\n";
    return kExitFinished;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (arguments[0] == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    names.emplace_back(command.name);
  }
  const std::string& word = arguments[0];
  if (word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json")) {
    throw Error(ErrorKind::kUsage, "'" + word +
                                       "' is no command; to train with this configuration: " +
                                       command_name() + " train " + word);
  }
  for (const OtherCommand& other : kOtherCommands) {
    if (word != other.name) continue;
    throw Error(ErrorKind::kUsage, "there is no command '" + word + "'; " + other.advice);
  }
  throw Error(ErrorKind::kUsage, "unknown command '" + arguments[0] + "'" +
                                     did_you_mean(arguments[0], names) +
                                     "; 'finetune --help' lists them");
}

void run_as_program(const char* name, const Arguments& arguments) {
  set_command_name(name);
  // Data may have more files than the usual limit of 1,024.
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  // If a standard stream is closed, open /dev/null, so that no file of ours gets its number and
  // then our messages.
  for (int stream = 0; stream <= 2; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
  exit_process(exit_code_of([&] {
    interrupt::throw_if_requested("starting");
    choose_vector_math();
    const int code = run(arguments);
    (void)flush_standard_output();
    return code;
  }));
}

}  // namespace finetune::cli
