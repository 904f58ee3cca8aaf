// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/printable.h"
#include "finetune/config/dump.h"
#include "finetune/config/examples.h"
#include "finetune/config/exclusions.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "finetune/train/check_files.h"
#include "finetune/train/run.h"

namespace finetune::cli {
namespace {

constexpr const char* kConfigHelp =
    R"(Writes, explains and checks configurations.

  finetune config init [--task mlm]            a commented configuration to start from
  finetune config example [NAME] [FOLDER]      an example that trains within a minute: NAME.yaml, its data and
                                               its tokenizer, in FOLDER (.); without NAME, their names
  finetune config defaults                     every key with its default and meaning, as YAML
  finetune config schema                       a JSON Schema, for editors
  finetune config table                        the table of keys in docs/configuration.md
  finetune config exclusions                   which techniques exclude each other, and why
  finetune config check CONFIG [--key value]   checks keys, values and their rules, and that data
                                               files and model folders exist
      --no_files                               checks keys and values only
)";

[[noreturn]] void refuse_config(const std::string& message) {
  throw Error(ErrorKind::kUsage, message + " (see `finetune config --help`)");
}

int print(const std::string& text) {
  std::cout << text << std::flush;
  return kExitFinished;
}

int init(const Arguments& arguments) {
  CommandLine line("config init", kConfigHelp);
  std::optional<std::string> task;
  line.value("--task", task);
  if (!line.parse(arguments)) return kExitFinished;
  if (!line.rest().empty())
    refuse_config("config init does not know '" + line.rest().front() + "'");
  return print(initial_yaml(task.value_or("mlm")));
}

// Whether `path` has `content` already. Throws where it has another one.
bool is_written(FileSystem& files, const std::string& path, const std::string& content) {
  if (!files.exists(path)) return false;
  if (files.read_all(path) == content) return true;
  throw Error(ErrorKind::kUsage, "'" + path +
                                     "' exists and is not the example's file; move it away, or "
                                     "name another folder: finetune config example NAME FOLDER");
}

int example(const Arguments& arguments) {
  CommandLine line("config example", kConfigHelp);
  if (!line.parse(arguments)) return kExitFinished;
  const Arguments& words = line.rest();
  if (words.empty()) {
    std::string names;
    for (const std::string& name : example_names()) names += name + "\n";
    return print(names);
  }
  if (words.size() > 2) refuse_config("config example does not know '" + words[2] + "'");
  const std::string folder = words.size() > 1 ? words[1] : ".";
  const std::vector<ExampleFile> example = example_files(words[0]);
  FileSystem& files = FileSystem::local();
  const auto path_of = [&](const ExampleFile& file) {
    return folder == "." ? file.path : join_path(folder, file.path);
  };
  std::vector<const ExampleFile*> missing;
  for (const ExampleFile& file : example) {
    if (!is_written(files, path_of(file), file.content)) missing.push_back(&file);
  }
  for (const ExampleFile* file : missing) {
    const std::string path = path_of(*file);
    const std::string parent = std::filesystem::path(path).parent_path();
    if (!parent.empty()) files.make_directories(parent);
    files.write_atomically(path, file->content);
  }
  const std::string config = path_of(example.front());
  return print(config + " and " + std::to_string(example.size() - 1) +
               " files that it names are written; train with: finetune train " + config + "\n");
}

int check(const Arguments& arguments) {
  CommandLine line("config check", kConfigHelp);
  bool no_files = false;
  line.flag("--no_files", no_files);
  if (!line.parse(arguments)) return kExitFinished;
  const ConfigWords words = line.config();
  const LoadedConfig config = load_config(words.path, words.overrides);
  for (const std::string& note : config.notes) log::warning(note);
  if (no_files) {
    validate(config, purpose_of_training(config.args));
  } else {
    validate_with_inputs(config, purpose_of_training(config.args));
    check_files(config);
    check_starting_folder(config);
    check_parts(config);
  }
  return print((words.path.empty() ? "the configuration" : printable(words.path)) +
               " is well-formed" + (no_files ? "\n" : ", and the files it names are there\n"));
}

}  // namespace

int config_command(const Arguments& arguments) {
  // Options may precede the subcommand: "config --no_files check run.yaml".
  const auto position = std::ranges::find_if(
      arguments, [](const std::string& word) { return !word.starts_with("-"); });
  if (position == arguments.end()) {
    CommandLine line("config", kConfigHelp);
    if (!line.parse(arguments)) return kExitFinished;
    refuse_config("config needs one of init, example, defaults, schema, table, exclusions, check");
  }
  const std::string& verb = *position;
  Arguments words(arguments.begin(), position);
  words.insert(words.end(), position + 1, arguments.end());
  if (verb == "init") return init(words);
  if (verb == "example") return example(words);
  if (verb == "check") return check(words);
  if (verb != "defaults" && verb != "schema" && verb != "table" && verb != "exclusions")
    refuse_config("config does not know '" + verb + "'");
  CommandLine line("config " + verb, kConfigHelp);
  if (!line.parse(words)) return kExitFinished;
  if (!line.rest().empty())
    refuse_config("config " + verb + " takes no '" + line.rest().front() + "'");
  if (verb == "exclusions") return print(describe_exclusions_markdown());
  if (verb == "table") return print(describe_keys_markdown());
  return print(verb == "defaults" ? defaults_yaml() : json_schema());
}

}  // namespace finetune::cli
