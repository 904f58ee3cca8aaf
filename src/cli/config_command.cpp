// SPDX-License-Identifier: MIT
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/config/dump.h"
#include "finetune/config/exclusions.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/check_files.h"

namespace finetune::cli {
namespace {

constexpr const char* kConfigHelp =
    R"(Writes, explains and checks configurations.

  finetune config init [--task mlm]            a commented configuration to start from
  finetune config defaults                     every key with its default and meaning, as YAML
  finetune config schema                       a JSON Schema, for editors
  finetune config table                        the same as the README's table of keys
  finetune config exclusions                   which techniques exclude each other, and why
  finetune config check CONFIG [--key value]   whether keys, values and their rules are right, and
                                               data files and model folders are there
      --no_files                               keys and values alone
)";

[[noreturn]] void refuse_config(const std::string& message) {
  throw Error(ErrorKind::kUsage, message + " (see `finetune config --help`)");
}

int print(const std::string& text) {
  std::cout << text << std::flush;
  return kExitFinished;
}

int init(const std::vector<std::string>& words) {
  std::string task = "mlm";
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--task=")) {
      task = words[i].substr(7);
    } else if (words[i] == "--task" && i + 1 < words.size()) {
      task = words[++i];
    } else {
      refuse_config("config init does not know '" + words[i] + "'");
    }
  }
  return print(initial_yaml(task));
}

int check(const std::vector<std::string>& arguments) {
  ArgumentReader reader(arguments);
  const bool looks_for_files = !reader.take_flag("--no_files");
  const ConfigWords words = reader.config("config check");
  const LoadedConfig config = load_config(words.path, words.overrides);
  for (const std::string& note : config.notes) log::warning(note);
  validate(config, Purpose::kTrain);
  if (looks_for_files) check_files(config);
  return print((words.path.empty() ? "the configuration" : words.path) + " is well-formed" +
               (looks_for_files ? ", and the files it names are there\n" : "\n"));
}

}  // namespace

int config_command(const std::vector<std::string>& arguments) {
  if (arguments.empty())
    refuse_config("config needs one of init, defaults, schema, table, exclusions, check");
  const std::string& verb = arguments.front();
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (verb == "--help" || verb == "-h" || (!words.empty() && words.front() == "--help")) {
    return print(kConfigHelp);
  }
  if (verb == "init") return init(words);
  if (verb == "check") return check(words);
  if (verb != "defaults" && verb != "schema" && verb != "table" && verb != "exclusions")
    refuse_config("config does not know '" + verb + "'");
  if (!words.empty()) refuse_config("config " + verb + " takes no '" + words.front() + "'");
  if (verb == "exclusions") return print(describe_exclusions_markdown());
  if (verb == "table") return print(describe_keys_markdown());
  return print(verb == "defaults" ? defaults_yaml() : json_schema());
}

}  // namespace finetune::cli
