// SPDX-License-Identifier: MIT
#include "finetune/model/frozen.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/name_pattern.h"
#include "finetune/base/printable.h"

namespace finetune {

struct FrozenParameters::Pattern {
  std::string text;
  NamePattern components;

  [[nodiscard]] bool chooses(const std::string& name) const { return components.matches(name); }
};

FrozenParameters::FrozenParameters(const std::vector<std::string>& patterns) {
  constexpr size_t kShown = 200;
  for (const std::string& text : patterns) {
    try {
      if (text.empty()) throw Error(ErrorKind::kConfig, "it is empty");
      (void)NamePattern(text);  // "a)(b" is invalid, but valid inside the group below
      patterns_.push_back(std::make_shared<const Pattern>(
          Pattern{text, NamePattern("(?:.*\\.)?(?:" + text + ")(?:\\..*)?")}));
    } catch (const Error& error) {
      throw Error(ErrorKind::kConfig, "'" + shortened(text, kShown) +
                                          "' is no regular expression: " + error.what() +
                                          "; name a module or parameter as in model.safetensors, "
                                          "for example embeddings or layer.[0-5]");
    }
  }
}

bool FrozenParameters::has(const std::string& parameter) const {
  return std::ranges::any_of(patterns_,
                             [&](const auto& pattern) { return pattern->chooses(parameter); });
}

void FrozenParameters::check(const std::vector<std::string>& parameters) const {
  for (const auto& pattern : patterns_) {
    if (std::ranges::any_of(parameters,
                            [&](const std::string& name) { return pattern->chooses(name); })) {
      continue;
    }
    throw Error(ErrorKind::kConfig, "'" + pattern->text +
                                        "' matches no parameter of the model; the first are " +
                                        parameters.front() + " and " +
                                        parameters[std::min<size_t>(1, parameters.size() - 1)]);
  }
  if (patterns_.empty() || parameters.empty()) return;
  if (std::ranges::all_of(parameters, [&](const std::string& name) { return has(name); })) {
    throw Error(ErrorKind::kConfig,
                "all parameters are frozen, so nothing would be trained; leave out a pattern");
  }
}

}  // namespace finetune
