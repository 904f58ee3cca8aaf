// SPDX-License-Identifier: MIT
#include "cli/config_arguments.h"

#include <algorithm>
#include <charconv>

#include "finetune/base/error.h"
#include "finetune/base/stop_signals.h"

namespace finetune::cli {

bool ArgumentReader::take_flag(const std::string& name) {
  const auto found = std::find(arguments_.begin(), arguments_.end(), name);
  if (found == arguments_.end()) return false;
  arguments_.erase(found);
  return true;
}

std::optional<std::string> ArgumentReader::take_value(const std::string& name) {
  for (auto it = arguments_.begin(); it != arguments_.end(); ++it) {
    if (it->starts_with(name + "=")) {
      const std::string value = it->substr(name.size() + 1);
      arguments_.erase(it);
      return value;
    }
    if (*it != name) continue;
    if (it + 1 == arguments_.end()) throw Error(ErrorKind::kUsage, name + " needs a value");
    const std::string value = *(it + 1);
    arguments_.erase(it, it + 2);
    return value;
  }
  return std::nullopt;
}

std::optional<int64_t> ArgumentReader::take_number(const std::string& name) {
  const std::optional<std::string> text = take_value(name);
  if (!text) return std::nullopt;
  int64_t number = 0;
  const auto result = std::from_chars(text->data(), text->data() + text->size(), number);
  if (result.ec != std::errc() || result.ptr != text->data() + text->size() || number < 1) {
    throw Error(ErrorKind::kUsage, name + " must be a whole number above 0, not '" + *text + "'");
  }
  return number;
}

bool ArgumentReader::asks_for_help() const {
  return std::any_of(arguments_.begin(), arguments_.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

ConfigWords ArgumentReader::config(const std::string& command) const {
  ConfigWords result = split_config_words(arguments_);
  if (result.path.empty() && result.overrides.empty()) {
    throw Error(ErrorKind::kUsage, "finetune " + command +
                                       " needs a configuration file or keys (--key value); "
                                       "'finetune config init > run.yaml' writes a file");
  }
  return result;
}

LoadedConfig load_long_run(const ConfigWords& words) {
  LoadedConfig config = load_config(words.path, words.overrides);
  if (config.args.on_sighup == "stop") interrupt::stop_on_hangup();
  return config;
}

}  // namespace finetune::cli
