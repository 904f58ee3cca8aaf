// SPDX-License-Identifier: MIT
#include "config/support.h"

#include <nlohmann/json.hpp>

#include "config/paths.h"
#include "config/values.h"
#include "config/words.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Whether a value is one that this version has; a list has to be it item by item.
bool is_available(const Field& field, const Json& value) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(), [&](const Json& item) {
      return contains(field.spec.available, plain_text(item));
    });
  }
  return contains(field.spec.available, plain_text(value));
}

// A default such as "~/.cache/finetune" that was written out in a file has been expanded by now.
bool is_expanded_default(const Field& field, const Json& value) {
  const Json initial = value_of(field, TrainingArgs{});
  if (field.spec.path == PathKind::kNone || !initial.is_string() || !value.is_string())
    return false;
  std::string ignored;
  return expand(initial.get<std::string>(), ignored) == value.get<std::string>();
}

// " (a, b are)", to follow "is not available in this version". A flag's "false" is not worth
// naming: it is what leaving the key out means.
std::string what_is_available(const Field& field) {
  const std::vector<std::string>& available = field.spec.available;
  if (available.empty() || available.front() == "false") return "";
  const std::vector<std::string> usable = usable_values(field);
  return " (" + join(usable) + (usable.size() > 1 ? " are)" : " is)");
}

}  // namespace

void check_support(const Field& field, const Setting& setting, const TrainingArgs& args,
                   std::vector<std::string>& notes, Problems& problems) {
  const FieldSpec& spec = field.spec;
  const bool restricted = spec.support == Support::kRefused || !spec.available.empty();
  if (!restricted && spec.support != Support::kAccepted) return;
  const Json value = value_of(field, args);
  if (value == value_of(field, TrainingArgs{}) || is_expanded_default(field, value)) return;
  const bool single = value.is_array() && value.size() == 1;
  const std::string text = plain_text(single ? value.front() : value);
  const std::string shown = "'" + field.name + (spec.secret ? "" : ": " + text) + "'";
  if (spec.support == Support::kAccepted) {
    notes.push_back(setting.where + ": " + shown +
                    " has no effect here: " + std::string(spec.reason));
  } else if (!is_available(field, value)) {
    problems.add(setting.where, shown + " " + std::string(spec.reason) + what_is_available(field));
  }
}

}  // namespace finetune
