// SPDX-License-Identifier: MIT
#include "cli/process/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/stop_signals.h"
#include "finetune/base/text.h"
#include "finetune/train/check_files.h"

namespace finetune::cli {
namespace {

int64_t parse_count(const char* name, const std::string& text) {
  int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec == std::errc() && result.ptr == text.data() + text.size() && number > 0) {
    return number;
  }
  throw Error(ErrorKind::kUsage,
              format_text("{} must be a whole number above 0, not '{}'", name, text));
}

double parse_real(const char* name, const std::string& text) {
  double number = 0.0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec == std::errc() && result.ptr == text.data() + text.size()) return number;
  throw Error(ErrorKind::kUsage, format_text("{} must be a number, not '{}'", name, text));
}

}  // namespace

LoadedConfig load_long_run(const ConfigWords& words) {
  LoadedConfig config = load_config(words.path, words.overrides);
  if (config.args.on_sighup == "stop") interrupt::stop_on_hangup();
  return config;
}

Purpose purpose_of_training(const TrainingArgs& args) {
  const bool evaluates_only = !args.do_train && args.do_eval;
  return evaluates_only ? Purpose::kEvaluate : Purpose::kTrain;
}

void validate_with_inputs(const LoadedConfig& config, Purpose purpose) {
  try {
    validate(config, purpose);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    std::string text = error.what();
    try {
      check_inputs(config);
    } catch (const Error& missing) {
      text += "\n" + std::string(missing.what());
    }
    throw Error(ErrorKind::kConfig, text);
  }
}

CommandLine::CommandLine(std::string command, std::string help, std::string (*more_help)())
    : command_(std::move(command)),
      help_(std::move(help)),
      more_help_(more_help),
      app_(std::make_unique<CLI::App>()) {
  // "-h" is compared separately: CLI11 would also match it at the start of a text such as "-hot".
  app_->set_help_flag();
  app_->allow_extras();
}

CommandLine::~CommandLine() = default;

void CommandLine::flag(const char* name, bool& value) { app_->add_flag(name, value); }

void CommandLine::value(const char* name, std::string& value) {
  app_->add_option_function<std::string>(name, [&value](const std::string& text) { value = text; });
}

void CommandLine::value(const char* name, std::optional<std::string>& value) {
  app_->add_option_function<std::string>(name, [&value](const std::string& text) { value = text; });
}

void CommandLine::number(const char* name, int64_t& value) {
  app_->add_option_function<std::string>(
      name, [name, &value](const std::string& text) { value = parse_count(name, text); });
}

void CommandLine::number(const char* name, std::optional<int64_t>& value) {
  app_->add_option_function<std::string>(
      name, [name, &value](const std::string& text) { value = parse_count(name, text); });
}

void CommandLine::number(const char* name, std::optional<double>& value) {
  app_->add_option_function<std::string>(
      name, [name, &value](const std::string& text) { value = parse_real(name, text); });
}

void CommandLine::truth(const char* name, std::optional<bool>& value) {
  app_->add_option_function<std::string>(name, [name, &value](const std::string& text) {
    if (text != "true" && text != "false") {
      throw Error(ErrorKind::kUsage, format_text("{} takes true or false, not '{}'", name, text));
    }
    value = text == "true";
  });
}

bool CommandLine::has(const char* name) const { return app_->count(name) > 0; }

bool CommandLine::parse(const Arguments& arguments) {
  // "finetune train help", unless there is a file of that name.
  const bool names_help = arguments.size() == 1 && arguments.front() == "help" &&
                          !FileSystem::local().exists(arguments.front());
  const bool wants_help = names_help || std::ranges::any_of(arguments, [](const std::string& word) {
                            return word == "--help" || word == "-h";
                          });
  if (wants_help) {
    std::cout << help_ << (more_help_ == nullptr ? "" : more_help_());
    return false;
  }
  try {
    app_->parse(Arguments(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ArgumentMismatch& error) {  // "--checkpoint: 1 required TEXT missing"
    const std::string what = error.what();
    throw Error(ErrorKind::kUsage, format_text("{} needs one value; see 'finetune {} --help'",
                                               what.substr(0, what.find(':')), command_));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kUsage,
                format_text("{}; see 'finetune {} --help'", error.what(), command_));
  }
  rest_ = app_->remaining();
  return true;
}

ConfigWords CommandLine::config() const {
  ConfigWords result = split_config_words(rest_);
  if (result.path.empty() && result.overrides.empty()) {
    throw Error(ErrorKind::kUsage,
                format_text("finetune {} needs a configuration file or keys (--key value); "
                            "'finetune config init > run.yaml' writes a file",
                            command_));
  }
  return result;
}

}  // namespace finetune::cli
