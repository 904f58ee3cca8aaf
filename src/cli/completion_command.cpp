// SPDX-License-Identifier: MIT
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "finetune/base/error.h"
#include "finetune/config/dump.h"
#include "finetune/config/training_args.h"

namespace finetune::cli {
namespace {

constexpr char kVerbs[] =
    "train evaluate predict tokenizer prepare plan checkpoints verify-resume config doctor "
    "completion";

std::string all_keys(const std::string& prefix) {
  std::string words;
  const auto json = to_json(TrainingArgs{});
  for (const auto& [key, value] : json.items()) {
    words += (words.empty() ? "" : " ") + prefix + key;
  }
  return words;
}

std::string bash_script() {
  return "_finetune() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]}\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         std::string(kVerbs) +
         "\" -- \"$word\"))\n"
         "  elif [[ $word == --* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         all_keys("--") +
         "\" -- \"$word\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _finetune finetune\n";
}

std::string fish_script() {
  return "complete -c finetune -n __fish_use_subcommand -f -a '" + std::string(kVerbs) +
         "'\nfor key in " + all_keys("") +
         "\n  complete -c finetune -n 'not __fish_use_subcommand' -l $key\nend\n";
}

}  // namespace

int completion_command(const Arguments& arguments) {
  const ArgumentReader reader(arguments);
  if (reader.asks_for_help()) {
    std::cout << "usage: finetune completion bash|zsh|fish\n\n"
                 "bash: source <(finetune completion bash)   zsh: the same   "
                 "fish: finetune completion fish | source\n";
    return kExitFinished;
  }
  const std::string shell = arguments.size() == 1 ? arguments[0] : "";
  if (shell == "bash") {
    std::cout << bash_script();
  } else if (shell == "zsh") {
    std::cout << "autoload -U +X bashcompinit && bashcompinit\n" << bash_script();
  } else if (shell == "fish") {
    std::cout << fish_script();
  } else {
    throw Error(ErrorKind::kUsage, "finetune completion takes the shell: bash, zsh or fish");
  }
  return kExitFinished;
}

}  // namespace finetune::cli
