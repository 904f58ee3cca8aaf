// SPDX-License-Identifier: MIT
// Shell completions, generated from each command's --help and from the list of keys.
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/config/fields.h"

namespace finetune::cli {
namespace {

using Words = std::vector<std::string>;

// The completions after a command.
struct Offer {
  Words subcommands;
  std::set<std::string> options;        // "--verify"
  std::map<std::string, Words> values;  // option -> its values, if there are few
};

std::string joined(const auto& words) { return join(Words(words.begin(), words.end()), " "); }

template <class Take>
void for_each_match(const std::string& text, const std::string& pattern, const Take& take) {
  const std::regex expression(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), expression), end; i != end; ++i) take(*i);
}

// Converts "auto|base|FOLDER" to auto, base.
Words words_of(const std::string& alternatives) {
  Words words;
  std::istringstream parts(alternatives);
  for (std::string part; std::getline(parts, part, '|');) {
    if (part.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos) {
      words.push_back(part);
    }
  }
  return words;
}

void add_keys(Offer& offer) {
  for (const Field& field : all_fields()) {
    const std::string option = "--" + field.name;
    offer.options.insert(option);
    const bool is_flag = holds<bool>(field) || holds<std::optional<bool>>(field);
    const Words values = is_flag ? Words{"true", "false"} : field.spec.choices;
    if (!values.empty()) offer.values[option] = values;
  }
}

Offer read_help(const std::string& name, const std::string& help) {
  Offer offer;
  const bool takes_keys = help.find("--key") != std::string::npos;
  if (takes_keys) add_keys(offer);
  for_each_match(help, "--[a-z][a-z_0-9]*", [&](const std::smatch& match) {
    if (match.str() != "--key" && match.str() != "--no") offer.options.insert(match.str());
  });
  for_each_match(help, "(--[a-z][a-z_0-9]*) ([A-Za-z_]+(\\|[A-Za-z_]+)+)",
                 [&](const std::smatch& match) { offer.values[match[1]] = words_of(match[2]); });
  // Matches "finetune config init ...", "usage: finetune completion bash|zsh|fish", and CLI11's
  // list.
  for_each_match(help, "finetune " + name + " ([a-z]+(\\|[a-z]+)*)", [&](const std::smatch& match) {
    for (const std::string& word : words_of(match[1])) {
      const auto& known = offer.subcommands;
      if (std::find(known.begin(), known.end(), word) == known.end()) {
        offer.subcommands.push_back(word);
      }
    }
  });
  const size_t list = help.find("Subcommands:\n");
  if (list != std::string::npos) {
    for_each_match(help.substr(list), "\n  ([a-z]+) ",
                   [&](const std::smatch& match) { offer.subcommands.push_back(match[1]); });
  }
  return offer;
}

// Returns the completions by "command", and by "command subcommand" for subcommands with options.
std::map<std::string, Offer> all_offers() {
  std::map<std::string, Offer> offers;
  for (const Command& command : all_commands()) {
    const std::string help = help_of(command, {});
    Offer& offer = offers[command.name] = read_help(command.name, help);
    const bool has_own_help = help.find("Subcommands:\n") != std::string::npos;
    for (const std::string& word : has_own_help ? offer.subcommands : Words{}) {
      const std::string name = std::string(command.name) + " " + word;
      offers[name] = read_help(name, help_of(command, {word}));
    }
  }
  return offers;
}

std::string bash_case(const std::string& names, const std::string& words) {
  return "    " + names + ") words=\"" + words + "\" ;;\n";
}

std::string bash_script() {
  const std::map<std::string, Offer> offers = all_offers();
  std::string commands;
  std::string subcommands;
  std::string options;
  std::map<std::string, Words> by_values;  // options of several commands with equal values
  for (const auto& [name, offer] : offers) {
    if (name.find(' ') == std::string::npos) commands += (commands.empty() ? "" : " ") + name;
    if (!offer.subcommands.empty()) subcommands += bash_case(name, joined(offer.subcommands));
    // Longer names first: "tokenizer train" before "tokenizer".
    const bool has_more = name.find(' ') != std::string::npos;
    options = has_more ? bash_case("\"" + name + "\"", joined(offer.options)) + options
                       : options + bash_case("\"" + name + " \"*", joined(offer.options));
    for (const auto& [option, values] : offer.values) {
      by_values[joined(values)].push_back("\"" + name + " " + option + "\"");
    }
  }
  std::string values;
  for (const auto& [words, positions] : by_values) {
    values += bash_case(join(positions, "|"), words);
  }
  return "_finetune() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
         "  local command=${COMP_WORDS[1]} second=${COMP_WORDS[2]}\n"
         "  [ \"$word\" = = ] && word=\n"
         "  [ \"$previous\" = = ] && previous=${COMP_WORDS[COMP_CWORD-2]}\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    words=\"" +
         commands + "\"\n  else\n    case \"$command $previous\" in\n" + values +
         "    esac\n    if [ -n \"$words\" ]; then\n      :\n"
         "    elif [[ $word == --* ]]; then\n      case \"$command $second\" in\n" +
         options +
         "      esac\n    elif [ \"$COMP_CWORD\" -eq 2 ]; then\n      case $command in\n" +
         subcommands +
         "      esac\n    fi\n  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _finetune finetune\n";
}

std::string fish_script() {
  std::string text = "complete -c finetune -f -n __fish_use_subcommand\n";
  for (const Command& command : all_commands()) {
    text += "complete -c finetune -n __fish_use_subcommand -a " + std::string(command.name) +
            " -d \"" + command.summary + "\"\n";
  }
  for (const auto& [name, offer] : all_offers()) {
    std::string when = "__fish_seen_subcommand_from " + name;
    const size_t space = name.find(' ');
    if (space != std::string::npos) {
      when = "__fish_seen_subcommand_from " + name.substr(0, space) +
             "; and __fish_seen_subcommand_from " + name.substr(space + 1);
    }
    const std::string start = "complete -c finetune -n '" + when + "'";
    if (!offer.subcommands.empty()) text += start + " -a '" + joined(offer.subcommands) + "'\n";
    for (const std::string& option : offer.options) {
      const auto values = offer.values.find(option);
      text += start + " -l " + option.substr(2) +
              (values == offer.values.end() ? "" : " -a '" + joined(values->second) + "'") + "\n";
    }
  }
  return text;
}

constexpr const char* kCompletionHelp =
    R"(usage: finetune completion bash|zsh|fish|man

bash: source <(finetune completion bash)   zsh: the same   fish: finetune completion fish | source
man: prints the manual page; finetune completion man | man -l -
)";

}  // namespace

int completion_command(const Arguments& arguments) {
  CommandLine line("completion", kCompletionHelp);
  if (!line.parse(arguments)) return kExitFinished;
  const std::string shell = line.rest().size() == 1 ? line.rest()[0] : "";
  if (shell == "bash") {
    std::cout << bash_script();
  } else if (shell == "zsh") {
    std::cout << "#compdef finetune\nautoload -U +X bashcompinit && bashcompinit\n"
              << bash_script();
  } else if (shell == "fish") {
    std::cout << fish_script();
  } else if (shell == "man") {
    std::cout << manual_page();
  } else {
    throw Error(ErrorKind::kUsage,
                "finetune completion takes the shell: bash, zsh or fish; or man, the manual page");
  }
  return kExitFinished;
}

}  // namespace finetune::cli
