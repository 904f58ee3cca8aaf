// SPDX-License-Identifier: MIT
#include "config/reading/assign.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "config/keys/words.h"
#include "config/reading/other_names.h"
#include "config/reading/paths.h"
#include "config/reading/scalars.h"
#include "config/reading/text.h"
#include "config/reading/values.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string number_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? std::to_string(static_cast<int64_t>(value)) : format_double(value);
}

// Whether this version supports a value, or every item of a list.
bool is_available(const Field& field, const Json& value) {
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(), [&](const Json& item) {
      return contains(field.spec.available, plain_text(item));
    });
  }
  return contains(field.spec.available, plain_text(value));
}

// Whether the value is a default such as "~/.cache/finetune" that was written in a file and has
// been expanded.
bool is_expanded_default(const Field& field, const Json& value) {
  const Json initial = value_of(field, TrainingArgs{});
  if (field.spec.path == PathKind::kNone || !initial.is_string() || !value.is_string())
    return false;
  std::string ignored;
  return expand(initial.get<std::string>(), ignored) == value.get<std::string>();
}

// Returns " (a, b are)", to follow "is not available in this version". A flag's "false" is not
// listed: it is the default.
std::string what_is_available(const Field& field) {
  const std::vector<std::string>& available = field.spec.available;
  if (available.empty() || available.front() == "false") return "";
  const std::vector<std::string> usable = usable_values(field);
  return " (" + join(usable) + (usable.size() > 1 ? " are)" : " is)");
}

// Adds a problem if this version rejects the key's value, a note if the value has no effect.
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

// Assigns one value to a member; faults are added to `problems`.
class Assignment {
 public:
  Assignment(const Field& field, const Setting& setting, const std::string& folder,
             Problems& problems)
      : field_(field), setting_(setting), folder_(folder), problems_(problems) {}

  bool operator()(bool& member) {
    const Node value = spelled(setting_.value);
    Parsed<bool> parsed = parse_bool(value);
    if (!parsed.value && value.is_scalar()) {
      parsed.expected += explain_other_value(field_.name, value.text, {});
    }
    return take(parsed, member);
  }

  bool operator()(int64_t& member) {
    int64_t value = 0;
    if (!take(parse_integer(spelled(setting_.value)), value)) return false;
    if (!in_range(static_cast<double>(value))) return false;
    member = value;
    return true;
  }

  bool operator()(double& member) {
    double value = 0;
    if (!take(parse_double(spelled(setting_.value)), value) || !in_range(value)) return false;
    member = value;
    return true;
  }

  bool operator()(std::string& member) { return text(setting_.value, member); }

  template <class T>
  bool operator()(std::optional<T>& member) {
    if (is_null(setting_.value)) {
      member.reset();
      return true;
    }
    T value{};
    if (!(*this)(value)) return false;
    member = std::move(value);
    return true;
  }

  bool operator()(std::vector<std::string>& member) {
    const Node value = spelled(setting_.value);
    std::vector<std::string> values;
    if (value.kind == Node::Kind::kList) {
      for (const Node& item : value.items) {
        if (!text(item, values.emplace_back())) return false;
      }
    } else if (!is_null(value)) {
      if (field_.spec.list_only) {
        return fail(
            "must be a list of the program and its arguments, as in [\"program\", \"word\"]");
      }
      if (!text(value, values.emplace_back())) return false;
    }
    for (const std::string& name : values) {
      if (names_several(name)) {
        return fail("has one text with commas, '" + name + "'; write a list: " + as_list(name));
      }
    }
    member = std::move(values);
    return true;
  }

  bool operator()(JsonText& member) {
    const Node& value = setting_.value;
    if (is_null(value)) {
      member.text.clear();
      return true;
    }
    const bool is_list = value.kind == Node::Kind::kList && field_.spec.listed;
    if (value.kind == Node::Kind::kMap || is_list) {
      member.text = to_json_text(value);
      for (const auto& [spelling, meaning] : field_.spec.spellings) {
        if (member.text == spelling) member.text = meaning;
      }
      return true;
    }
    if (!value.is_scalar()) return fail("must be a mapping, not " + show(value));
    return mapping_from_text(value.text, member);
  }

 private:
  bool fail(const std::string& message) {
    problems_.add(setting_.where, "'" + field_.name + "' " + message);
    return false;
  }

  template <class T>
  bool take(const Parsed<T>& parsed, T& member) {
    if (!parsed.value) return fail(parsed.expected);
    member = *parsed.value;
    return true;
  }

  // Returns the value, or the value for which it is another spelling.
  [[nodiscard]] Node spelled(const Node& value) const {
    for (const auto& [spelling, meaning] : field_.spec.spellings) {
      const bool is_text = value.is_scalar() && lower_case(value.text) == spelling;
      const bool is_no_items =
          spelling == "[]" && value.kind == Node::Kind::kList && value.items.empty();
      if (spelling == "null" ? is_null(value) : is_text || is_no_items)
        return {.kind = holds<bool>(field_) ? Node::Kind::kPlain : Node::Kind::kQuoted,
                .text = meaning};
    }
    return value;
  }

  bool in_range(double value) {
    const Range& range = field_.spec.range;
    if (range.above_min ? value <= range.min : value < range.min) {
      return fail((range.above_min ? "must be above " : "must be at least ") +
                  number_text(range.min) + ", not " + number_text(value));
    }
    if (range.below_max ? value >= range.max : value > range.max) {
      return fail((range.below_max ? "must be below " : "must be at most ") +
                  number_text(range.max) + ", not " + number_text(value));
    }
    return true;
  }

  bool text(const Node& written, std::string& member) {
    const Node value = spelled(written);
    Parsed<std::string> parsed = parse_string(value);
    if (!parsed.value) return fail(parsed.expected);
    const FieldSpec& spec = field_.spec;
    if (!spec.choices.empty() && !contains(spec.choices, *parsed.value)) {
      const std::optional<std::string> of_enum = value_of_enum(*parsed.value);
      if (of_enum && contains(spec.choices, *of_enum)) parsed.value = of_enum;
    }
    const bool is_choice = contains(spec.choices, *parsed.value);
    if (spec.path == PathKind::kNone) {
      if (!spec.choices.empty() && !is_choice) {
        const std::vector<std::string> usable =
            spec.available.empty() ? spec.choices : usable_values(field_);
        return fail("must be one of " + join(usable) + ", not " + show(value) +
                    explain_other_value(field_.name, *parsed.value, usable));
      }
      member = *parsed.value;
      return true;
    }
    if (is_choice) {
      member = *parsed.value;
      return true;
    }
    return path(*parsed.value, member);
  }

  bool path(const std::string& written, std::string& member) {
    if (written.empty()) return fail("must not be empty");
    std::string problem;
    const std::optional<std::string> expanded = expand(written, problem);
    if (!expanded) return fail(problem);
    if (expanded->empty()) return fail("is empty after '" + written + "' is expanded");
    // Text that began with "~" is a path even if it expands to a relative one.
    const bool was_home = written.starts_with('~');
    const PathKind kind = was_home ? PathKind::kPath : field_.spec.path;
    problem = problem_of_location(*expanded, kind);
    if (!problem.empty()) return fail(problem);
    member = resolve_path(*expanded, folder_, kind);
    return true;
  }

  // Whether a text joins names of modules with commas: "q_proj,v_proj". Other lists hold files and
  // columns, whose names may have commas, as regular expressions may.
  [[nodiscard]] bool names_several(std::string_view text) const {
    if (!field_.name.starts_with("lora_")) return false;
    return text.find(',') != std::string_view::npos &&
           text.find_first_of("()[]{}|*+?^$\\") == std::string_view::npos;
  }

  // "q_proj,v_proj" as "[q_proj, v_proj]", or as words of a command line.
  [[nodiscard]] std::string as_list(const std::string& names) const {
    const bool is_option = setting_.where == "command line";
    std::string list;
    for (const char c : names) {
      if (c == ' ') continue;
      list += c == ',' ? std::string(is_option ? " " : ", ") : std::string(1, c);
    }
    return is_option ? "--" + field_.name + " " + list : "[" + list + "]";
  }

  bool mapping_from_text(const std::string& written, JsonText& member) {
    if (written.starts_with('{')) {
      const Node value = read_inline_json(written, setting_.where + ": '" + field_.name + "'");
      member.text = to_json_text(value);
      return true;
    }
    if (written.find('=') == std::string::npos) {
      if (!field_.spec.named) {
        return fail("must be a mapping, or text like \"key=value,key=value\", not " +
                    show(setting_.value));
      }
      member.text = Json(written).dump();
      return true;
    }
    Node map{.kind = Node::Kind::kMap};
    for (size_t start = 0; start <= written.size();) {
      const size_t end = std::min(written.find(',', start), written.size());
      const std::string pair = written.substr(start, end - start);
      const size_t equals = pair.find('=');
      if (equals == std::string::npos || equals == 0) {
        return fail("must be text like \"key=value,key=value\": '" + pair + "' is not");
      }
      const std::string name = pair.substr(0, equals);
      if (map.names.size() >= kMaxConfigValues) return fail("holds too many values");
      if (contains(map.names, name)) return fail("names '" + name + "' twice");
      map.names.push_back(name);
      map.items.push_back({.kind = Node::Kind::kPlain, .text = pair.substr(equals + 1)});
      start = end + 1;
    }
    member.text = to_json_text(map);
    return true;
  }

  const Field& field_;
  const Setting& setting_;
  const std::string& folder_;
  Problems& problems_;
};

}  // namespace

void assign(const Field& field, const Setting& setting, const std::string& folder,
            TrainingArgs& args, std::vector<std::string>& notes, Problems& problems) {
  Assignment assignment(field, setting, folder, problems);
  const bool assigned = std::visit(
      [&](const auto& member) {
        try {
          if constexpr (std::is_same_v<std::decay_t<decltype(member)>, ForeignKey>) {
            ForeignValue value = member.initial;
            if (!std::visit(assignment, value)) return false;
            args.foreign[field.name] = std::move(value);
            return true;
          } else {
            return assignment(args.*member);
          }
        } catch (const Error& error) {  // JSON inside a value: one fault among others
          problems.add_line(error.what());
          return false;
        }
      },
      field.member);
  if (assigned) check_support(field, setting, args, notes, problems);
}

}  // namespace finetune
