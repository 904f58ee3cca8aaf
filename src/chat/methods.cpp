// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "chat/arguments.h"
#include "chat/characters.h"
#include "chat/filters.h"
#include "chat/formatting.h"
#include "finetune/base/printable.h"
#include "finetune/base/utf8.h"

namespace finetune::chat {
namespace {

bool given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

Value list_of(Texts texts) {
  List list;
  for (TracedText& text : texts) list.items.emplace_back(std::move(text));
  return list;
}

// str.split() without a separator: words between white space.
Texts words(const TracedText& text, int64_t most) {
  Texts parts;
  const std::string_view bytes = text.str();
  size_t at = stripped(bytes, Ends::kLeft).begin;
  while (at < bytes.size()) {
    if (most >= 0 && std::ssize(parts) == most) {
      parts.push_back(text.slice(at, bytes.size()));
      break;
    }
    size_t end = at;
    while (end < bytes.size()) {
      Limits::work(4);
      size_t next = end;
      if (is_space(utf8::decode(bytes, next))) break;
      end = next;
    }
    parts.push_back(text.slice(at, end));
    at = end + stripped(bytes.substr(end), Ends::kLeft).begin;
  }
  return parts;
}

Texts words_from_right(const TracedText& text, int64_t most) {
  Texts parts = words(text, -1);
  if (most < 0 || std::ssize(parts) <= most) return parts;
  // The first part keeps the white space between its words.
  Texts last(parts.end() - most, parts.end());
  size_t end = text.size();
  for (int64_t i = 0; i < most; ++i) {
    end = stripped(std::string_view(text.str()).substr(0, end), Ends::kRight).end;
    end -= last[last.size() - 1 - static_cast<size_t>(i)].size();
  }
  end = stripped(std::string_view(text.str()).substr(0, end), Ends::kRight).end;
  last.insert(last.begin(), text.slice(0, end));
  return last;
}

Texts split(const TracedText& text, const std::string& separator, int64_t most) {
  Texts parts;
  size_t begin = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const size_t found = find_text(text.str(), separator, begin);
    if (found == std::string::npos) break;
    parts.push_back(text.slice(begin, found));
    begin = found + separator.size();
  }
  parts.push_back(text.slice(begin, text.size()));
  return parts;
}

Texts split_from_right(const TracedText& text, const std::string& separator, int64_t most) {
  Texts parts;
  size_t end = text.size();
  while (most < 0 || std::ssize(parts) < most) {
    if (end < separator.size()) break;
    const size_t found = find_last_text(std::string_view(text.str()).substr(0, end), separator);
    if (found == std::string::npos) break;
    parts.push_back(text.slice(found + separator.size(), end));
    end = found;
  }
  parts.push_back(text.slice(0, end));
  std::ranges::reverse(parts);
  return parts;
}

Value split_method(const TracedText& text, const Arguments& arguments, bool from_right) {
  const auto values = bind(arguments, {"sep", "maxsplit"});
  const int64_t most = given(values[1]) ? as_integer(values[1]) : -1;
  if (!given(values[0]))
    return list_of(from_right ? words_from_right(text, most) : words(text, most));
  const std::string& separator = as_text(values[0]).str();
  if (separator.empty()) fail("empty separator");
  return list_of(from_right ? split_from_right(text, separator, most)
                            : split(text, separator, most));
}

Value split_lines(const TracedText& text, const Arguments& arguments) {
  const bool keeps_ends = bind(arguments, {"keepends"})[0].truth();
  Texts lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    Limits::work(4);
    const size_t end = at;
    const char32_t c = utf8::decode(text.str(), at);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text.str()[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keeps_ends ? at : end));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.slice(begin, text.size()));
  return list_of(std::move(lines));
}

Value strip_method(const TracedText& text, const Arguments& arguments, Ends ends) {
  const auto values = bind(arguments, {"chars"});
  return strip(text, ends, values[0]);
}

// str.startswith() and endswith(), of one text or a tuple.
Value matches_end(const TracedText& text, const Arguments& arguments, bool at_start) {
  const auto values = bind(arguments, {"affix", "start", "end"}, 1);
  std::string_view bytes = text.str();
  if (given(values[1]) || given(values[2])) fail("start and end are not available");
  const auto matches = [&](const Value& affix) {
    Limits::work(8 + as_text(affix).size() / 8);
    const std::string& other = as_text(affix).str();
    return at_start ? bytes.starts_with(other) : bytes.ends_with(other);
  };
  if (const List* list = values[0].list()) return std::ranges::any_of(list->items, matches);
  return matches(values[0]);
}

Value find_method(const TracedText& text, const Arguments& arguments, bool last, bool required) {
  const auto values = bind(arguments, {"sub", "start"}, 1);
  const int64_t start = given(values[1]) ? as_integer(values[1]) : 0;
  if (start < 0) fail("a negative start is not available");
  const size_t from = byte_offset(text.str(), start);
  const std::string& part = as_text(values[0]).str();
  size_t found = last ? find_last_text(text.str(), part) : find_text(text.str(), part, from);
  if (last && found != std::string::npos && found < from) found = std::string::npos;
  if (found == std::string::npos) {
    if (required) fail("substring not found");
    return int64_t{-1};
  }
  return length(std::string_view(text.str()).substr(0, found));
}

Value count_method(const TracedText& text, const Arguments& arguments) {
  const auto values = bind(arguments, {"sub"}, 1);
  const std::string& part = as_text(values[0]).str();
  if (part.empty()) return length(text.str()) + 1;
  int64_t count = 0;
  for (size_t at = find_text(text.str(), part); at != std::string::npos;
       at = find_text(text.str(), part, at + part.size())) {
    ++count;
  }
  return count;
}

Value partition(const TracedText& text, const Arguments& arguments, bool last) {
  const auto values = bind(arguments, {"sep"}, 1);
  const TracedText& separator = as_text(values[0]);
  if (separator.empty()) fail("empty separator");
  const size_t found =
      last ? find_last_text(text.str(), separator.str()) : find_text(text.str(), separator.str());
  List parts{.items = {}, .is_tuple = true};
  if (found == std::string::npos) {
    parts.items = {Value(TracedText()), Value(TracedText()), Value(TracedText())};
    parts.items[last ? 2 : 0] = text;
  } else {
    const size_t end = found + separator.size();
    parts.items = {text.slice(0, found), text.slice(found, end), text.slice(end, text.size())};
  }
  return parts;
}

Value without_affix(const TracedText& text, const Arguments& arguments, bool at_start) {
  const auto values = bind(arguments, {"affix"}, 1);
  const std::string& affix = as_text(values[0]).str();
  if (at_start && text.str().starts_with(affix)) return text.slice(affix.size(), text.size());
  if (!at_start && text.str().ends_with(affix)) return text.slice(0, text.size() - affix.size());
  return text;
}

using TextMethod = Value (*)(const TracedText&, const Arguments&);

#define FT_TEXT_METHOD(expression) \
  [](const TracedText& text, const Arguments& arguments) -> Value { return expression; }

const std::pair<std::string_view, TextMethod> kTextMethods[] = {
    {"split", FT_TEXT_METHOD(split_method(text, arguments, false))},
    {"rsplit", FT_TEXT_METHOD(split_method(text, arguments, true))},
    {"splitlines", FT_TEXT_METHOD(split_lines(text, arguments))},
    {"strip", FT_TEXT_METHOD(strip_method(text, arguments, Ends::kBoth))},
    {"lstrip", FT_TEXT_METHOD(strip_method(text, arguments, Ends::kLeft))},
    {"rstrip", FT_TEXT_METHOD(strip_method(text, arguments, Ends::kRight))},
    {"startswith", FT_TEXT_METHOD(matches_end(text, arguments, true))},
    {"endswith", FT_TEXT_METHOD(matches_end(text, arguments, false))},
    {"upper", FT_TEXT_METHOD((take_none(arguments), with_case(text, Case::kUpper)))},
    {"lower", FT_TEXT_METHOD((take_none(arguments), with_case(text, Case::kLower)))},
    {"title", FT_TEXT_METHOD((take_none(arguments), with_case(text, Case::kTitle)))},
    {"capitalize", FT_TEXT_METHOD((take_none(arguments), with_case(text, Case::kCapitalized)))},
    {"replace", FT_TEXT_METHOD(replace_method(text, arguments))},
    {"find", FT_TEXT_METHOD(find_method(text, arguments, false, false))},
    {"rfind", FT_TEXT_METHOD(find_method(text, arguments, true, false))},
    {"index", FT_TEXT_METHOD(find_method(text, arguments, false, true))},
    {"rindex", FT_TEXT_METHOD(find_method(text, arguments, true, true))},
    {"count", FT_TEXT_METHOD(count_method(text, arguments))},
    {"join", FT_TEXT_METHOD(join_items(items_of(bind(arguments, {"iterable"}, 1)[0]), text, true))},
    {"format", FT_TEXT_METHOD(formatted(text, arguments))},
    {"partition", FT_TEXT_METHOD(partition(text, arguments, false))},
    {"rpartition", FT_TEXT_METHOD(partition(text, arguments, true))},
    {"removeprefix", FT_TEXT_METHOD(without_affix(text, arguments, true))},
    {"removesuffix", FT_TEXT_METHOD(without_affix(text, arguments, false))},
    {"isalpha", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kAlpha)))},
    {"isdigit", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kDigit)))},
    {"isdecimal", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kDigit)))},
    {"isnumeric", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kDigit)))},
    {"isalnum", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kAlnum)))},
    {"isspace", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kSpace)))},
    {"isupper", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kUpper)))},
    {"islower", FT_TEXT_METHOD((take_none(arguments), is_all(text.str(), Class::kLower)))},
};
#undef FT_TEXT_METHOD

constexpr std::array<std::string_view, 8> kUnavailableOfText = {
    "format_map", "encode", "translate", "zfill", "center", "ljust", "rjust", "expandtabs"};

constexpr std::array<std::string_view, 5> kOfDict = {"get", "items", "keys", "values", "copy"};
constexpr std::array<std::string_view, 3> kOfList = {"index", "count", "copy"};

Value dict_method(const Value& self, const std::string& name, const Arguments& arguments) {
  const Dict& dict = *self.dict();
  if (name == "get") {
    const auto values = bind(arguments, {"key", "default"}, 1);
    const Value* found = find(dict, values[0]);
    if (found != nullptr) return *found;
    return values[1].is_undefined() && arguments.positional.size() < 2 && arguments.named.empty()
               ? Value(None{})
               : values[1];
  }
  take_none(arguments);
  if (name == "copy") return self;
  List list;
  for (const auto& [key, value] : dict.items) {
    if (name == "keys") {
      list.items.push_back(key);
    } else if (name == "values") {
      list.items.push_back(value);
    } else {
      list.items.emplace_back(List{.items = {key, value}, .is_tuple = true});
    }
  }
  return list;
}

Value list_method(const Value& self, const std::string& name, const Arguments& arguments) {
  const List& list = *self.list();
  if (name == "copy") return self;
  const Value wanted = bind(arguments, {"value"}, 1)[0];
  const auto is_wanted = [&](const Value& item) { return equal(item, wanted); };
  if (name == "count") return static_cast<int64_t>(std::ranges::count_if(list.items, is_wanted));
  const auto found = std::ranges::find_if(list.items, is_wanted);
  if (found == list.items.end()) fail("value is not in list");
  return static_cast<int64_t>(found - list.items.begin());
}

template <size_t kCount>
bool is_one_of(const std::array<std::string_view, kCount>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

Callable refusing(const std::string& name, const std::string& why) {
  return {.name = name,
          .call = [name, why](const Arguments&) -> Value { fail("'" + name + "' " + why); }};
}

}  // namespace

TracedText strip(const TracedText& text, Ends ends, const Value& chars) {
  const std::string* set = given(chars) ? &as_text(chars).str() : nullptr;
  const ByteRange range = stripped(text.str(), ends, set);
  return text.slice(range.begin, range.end);
}

TracedText join_items(const Values& items, const TracedText& separator, bool only_text) {
  TracedText result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (only_text && items[i].text() == nullptr) {
      fail("sequence item " + std::to_string(i) + ": expected str, not " + items[i].type_name());
    }
    if (i > 0) result.append(separator);
    result.append(to_text(items[i]));
  }
  return result;
}

TracedText replace_method(const TracedText& text, const Arguments& arguments) {
  const auto values = bind(arguments, {"old", "new", "count"}, 2);
  const TracedText& before = as_text(values[0]);
  const TracedText& after = as_text(values[1]);
  const int64_t most = given(values[2]) ? as_integer(values[2]) : -1;
  TracedText result;
  size_t begin = 0;
  size_t at = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    const size_t found = find_text(text.str(), before.str(), at);
    if (found == std::string::npos) break;
    result.append(text, begin, found);
    result.append(after);
    begin = found + before.size();
    at = begin;
    if (before.empty()) {  // between all characters, and at both ends
      if (at >= text.size()) break;
      at = next_character(text.str(), at);
    }
  }
  result.append(text, begin, text.size());
  return result;
}

std::vector<std::string_view> method_names() {
  std::vector<std::string_view> names(kOfDict.begin(), kOfDict.end());
  names.insert(names.end(), kOfList.begin(), kOfList.end());
  for (const auto& [name, method] : kTextMethods) names.push_back(name);
  return names;
}

Value bound_method(const Value& value, const std::string& name) {
  if (value.text() != nullptr) {
    const auto found = std::ranges::find(kTextMethods, name, [](const auto& m) { return m.first; });
    if (value.text()->is_markup()) {
      return refusing(name, "of a text of |safe is not available");
    }
    if (found != std::end(kTextMethods)) {
      return Callable{.name = name,
                      .call = [value, method = found->second](const Arguments& arguments) {
                        return method(*value.text(), arguments);
                      }};
    }
    if (is_one_of(kUnavailableOfText, name)) return refusing(name, "is not available");
  }
  static constexpr std::array<std::string_view, 11> kChanging = {
      "append", "extend",  "insert", "remove",  "pop",       "clear",
      "sort",   "reverse", "update", "popitem", "setdefault"};
  if (value.dict() != nullptr && is_one_of(kOfDict, name)) {
    return Callable{
        .name = name,
        .call = [value,
                 name](const Arguments& arguments) { return dict_method(value, name, arguments); },
        .nesting = value.nesting()};
  }
  if (value.list() != nullptr && is_one_of(kOfList, name)) {
    return Callable{
        .name = name,
        .call = [value,
                 name](const Arguments& arguments) { return list_method(value, name, arguments); },
        .nesting = value.nesting()};
  }
  if ((value.dict() != nullptr || value.list() != nullptr) && is_one_of(kChanging, name)) {
    return refusing(name, "is not available: a template cannot change lists and dicts");
  }
  return Value::undefined(name);
}

namespace {

Value member_of(const Value& value, const Value& key) {
  if (const Dict* dict = value.dict()) {
    const Value* found = find(*dict, key);
    return found == nullptr ? Value() : *found;
  }
  const auto index = key.whole();
  if (const List* list = value.list(); list != nullptr && index) {
    const int64_t size = std::ssize(list->items);
    const int64_t at = *index < 0 ? *index + size : *index;
    return at < 0 || at >= size ? Value() : list->items[static_cast<size_t>(at)];
  }
  if (const TracedText* text = value.text(); text != nullptr && index) {
    const int64_t size = length(text->str());
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size) return {};
    const size_t begin = byte_offset(text->str(), at);
    size_t end = begin;
    end = next_character(text->str(), end);
    return text->slice(begin, end);
  }
  return {};
}

Value attribute_only(const Value& value, const std::string& name) {
  if (const Namespace* members = value.members()) {
    Limits::work(4 * members->members.size());
    const auto found =
        std::ranges::find(members->members, name,
                          [](const auto& member) -> const std::string& { return member.first; });
    return found == members->members.end() ? Value() : found->second;
  }
  if (const List* list = value.list(); list != nullptr && list->is_group) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  if (const Object* object = value.object()) return object->member(name).value_or(Value());
  return bound_method(value, name);
}

Value named_undefined(const Value& key) {
  const std::string name = key.text() != nullptr ? key.text()->str() : to_text(key).str();
  return Value::undefined(shortened(name, Limits::kMaxMessage));
}

}  // namespace

Value attribute_of(const Value& value, const Value& name) {
  if (value.is_undefined()) fail_undefined(value);
  Value result = attribute_only(value, as_text(name).str());
  if (result.is_undefined()) result = member_of(value, name);
  return result.is_undefined() ? named_undefined(name) : result;
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) fail_undefined(value);
  Value result = member_of(value, key);
  if (result.is_undefined() && key.text() != nullptr) {
    result = attribute_only(value, key.text()->str());
  }
  return result.is_undefined() ? named_undefined(key) : result;
}

}  // namespace finetune::chat
