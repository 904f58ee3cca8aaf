// SPDX-License-Identifier: MIT
#include "chat/filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "chat/arguments.h"
#include "chat/characters.h"
#include "chat/formatting.h"
#include "finetune/base/utf8.h"

namespace finetune::chat {
namespace {

bool given(const Value& value) { return !value.is_undefined() && !value.is_none(); }

Value as_list(Values items) { return List{.items = std::move(items)}; }

// What Python's generators give, once.
Value as_generator(Values items) {
  List list{.items = std::move(items)};
  list.taken = std::make_shared<size_t>(0);
  return list;
}

// Returns item.a.b or item.0 for "a.b" or "0", as make_attrgetter() of jinja2.
Value attribute_path(const Value& item, const Value& path) {
  if (path.integer() != nullptr) return item_of(item, path);
  Value value = item;
  const std::string& names = as_text(path).str();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    Limits::step();
    const std::string name = names.substr(begin, end - begin);
    int64_t index = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = !name.empty() && parsed.ptr == name.data() + name.size();
    value = item_of(value, is_index ? Value(index) : Value(name));
    begin = end + 1;
  }
  return value;
}

Value to_json_filter(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonFormat format{.ensure_ascii = values[0].truth(), .sort_keys = values[3].truth()};
  if (given(values[1])) {
    if (const TracedText* text = values[1].text()) {
      format.indent = text->str();
    } else {
      format.indent =
          std::string(static_cast<size_t>(std::clamp<int64_t>(as_integer(values[1]), 0, 64)), ' ');
    }
    format.item_separator = ",";
  }
  if (given(values[2])) {
    const Values parts = items_of(values[2]);
    if (parts.size() != 2) fail("separators must be two texts");
    format.item_separator = as_text(parts[0]).str();
    format.key_separator = as_text(parts[1]).str();
  }
  return to_json(value, format);
}

// jinja2's title(): words begin behind white space, hyphens and opening brackets.
TracedText title(const TracedText& text) {
  static constexpr std::string_view kStarts = "-({[<";
  TracedText result;
  size_t begin = 0;
  bool starts = true;
  const auto add = [&](size_t end) {
    const size_t first = begin < end ? next_character(text.str(), begin) : end;
    result.append(with_case(text.slice(begin, first), Case::kUpper));
    result.append(with_case(text.slice(first, end), Case::kLower));
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    Limits::work(4);
    const size_t here = at;
    const char32_t c = utf8::decode(text.str(), at);
    const bool separates =
        is_space(c) || (c < 0x80 && kStarts.find(static_cast<char>(c)) != std::string_view::npos);
    if (starts != separates) add(here);
    starts = separates;
  }
  add(text.size());
  return result;
}

TracedText indent(const TracedText& text, const Arguments& arguments) {
  const auto values = bind(arguments, {"width", "first", "blank"});
  std::string space(4, ' ');
  if (const TracedText* width = values[0].text()) {
    space = width->str();
  } else if (given(values[0])) {
    space.assign(static_cast<size_t>(std::clamp<int64_t>(as_integer(values[0]), 0, 1000)), ' ');
  }
  TracedText result;
  bool is_first = true;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.str().find('\n', begin), text.size());
    const bool indents = is_first ? values[1].truth() : begin < end || values[2].truth();
    if (!is_first) result.append("\n");
    if (indents) result.append(space);
    result.append(text, begin, end);
    is_first = false;
    begin = end + 1;
  }
  return result;
}

// The key of sorting: text without case, unless case_sensitive.
Value sort_key(const Value& value, bool case_sensitive) {
  if (case_sensitive || value.text() == nullptr) return value;
  return with_case(*value.text(), Case::kLower);
}

Values sorted(Values items, bool reverse, bool case_sensitive,
              const std::function<Value(const Value&)>& key) {
  Counted<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(sort_key(key(item), case_sensitive), item);
  const auto before = [&](const auto& a, const auto& b) {
    return reverse ? compare("<", b.first, a.first) : compare("<", a.first, b.first);
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
  return items;
}

Value sort(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"reverse", "case_sensitive", "attribute"});
  return as_list(
      sorted(items_of(value), values[0].truth(), values[1].truth(), [&](const Value& item) {
        return given(values[2]) ? attribute_path(item, values[2]) : item;
      }));
}

Value dict_sort(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"case_sensitive", "by", "reverse"});
  if (value.dict() == nullptr) fail(std::string("needs a dict, not ") + value.type_name());
  Values items;
  for (const auto& [key, item] : value.dict()->items) {
    items.emplace_back(List{.items = {key, item}, .is_tuple = true});
  }
  const size_t by = given(values[1]) && as_text(values[1]).str() == "value" ? 1 : 0;
  return as_list(sorted(std::move(items), values[2].truth(), values[0].truth(),
                        [&](const Value& item) { return item.list()->items[by]; }));
}

Value items_filter(const Value& value, const Arguments& arguments) {
  take_none(arguments);
  if (value.is_undefined()) return List{};
  if (value.dict() == nullptr) fail("Can only get item pairs from a mapping.");
  List list;
  for (const auto& [key, item] : value.dict()->items) {
    list.items.emplace_back(List{.items = {key, item}, .is_tuple = true});
  }
  return list;
}

Arguments rest_of(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  rest.names = arguments.names;
  return rest;
}

// Of a false value, even one that cannot be iterated, map(), select() and the like give nothing.
Values items_if_true(const Value& value) { return value.truth() ? items_of(value) : Values(); }

Value map(const Value& value, const Arguments& arguments) {
  Values items = items_if_true(value);
  if (arguments.positional.empty()) {
    const auto values = bind(arguments, {"attribute", "default"});
    if (values[0].is_undefined()) fail("needs the name of a filter, or attribute=");
    for (Value& item : items) {
      Value member = attribute_path(item, values[0]);
      item = member.is_undefined() && !values[1].is_undefined() ? values[1] : member;
    }
    return as_generator(std::move(items));
  }
  const std::string& name = as_text(arguments.positional[0]).str();
  const Filter* filter = find_filter(name);
  if (filter == nullptr) fail("no filter named '" + name + "'");
  const Arguments rest = rest_of(arguments, 1);
  for (Value& item : items) {
    const Limits::Deeper deeper;  // map('map', 'map', ...)
    Limits::step();
    item = filter->call(item, rest);
  }
  return as_generator(std::move(items));
}

// select(), reject(), selectattr() and rejectattr().
Value select(const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  Values kept;
  const size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) fail("needs the name of an attribute");
  const Test* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > first) {
    const std::string& name = as_text(arguments.positional[first]).str();
    test = find_test(name);
    if (test == nullptr) fail("no test named '" + name + "'");
    rest = rest_of(arguments, first + 1);
  }
  for (const Value& item : items_if_true(value)) {
    Limits::step();
    const Value tested = by_attribute ? attribute_path(item, arguments.positional[0]) : item;
    if ((test != nullptr ? test->call(tested, rest) : tested.truth()) == wanted) {
      kept.push_back(item);
    }
  }
  return as_generator(std::move(kept));
}

Value join_filter(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"d", "attribute"});
  Values items = items_of(value);
  if (given(values[1])) {
    for (Value& item : items) item = attribute_path(item, values[1]);
  }
  return join_items(items, to_text(values[0]), false);
}

// int() of a number. Python's integers have no bound, these have 64 bits.
int64_t whole_of(double number) {
  if (std::isinf(number)) fail("cannot convert float infinity to integer");
  if (std::fabs(number) >= 0x1p63) fail("the integer needs more than 64 bits");
  return static_cast<int64_t>(number);
}

Value to_integer(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"default", "base"});
  const Value otherwise = values[0].is_undefined() ? Value(int64_t{0}) : values[0];
  if (value.is_undefined()) fail_undefined(value);
  if (const auto whole = value.whole()) return *whole;
  if (const double* number = value.number()) {
    if (std::isnan(*number)) return otherwise;
    return whole_of(*number);
  }
  if (value.text() == nullptr) return otherwise;
  Limits::work(value.text()->size());
  const int64_t base = given(values[1]) ? as_integer(values[1]) : 10;
  if (base < 2 || base > 36) fail("base must be 2 to 36");
  const ByteRange range = stripped(value.text()->str(), Ends::kBoth);
  std::string_view digits =
      std::string_view(value.text()->str()).substr(range.begin, range.end - range.begin);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t number = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (!digits.empty() && parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size())
    return number;
  if (parsed.ec == std::errc::result_out_of_range && parsed.ptr == digits.data() + digits.size()) {
    fail("the integer needs more than 64 bits");
  }
  double real = 0;
  const auto other = std::from_chars(digits.data(), digits.data() + digits.size(), real);
  const bool is_real = !digits.empty() && other.ec == std::errc() &&
                       other.ptr == digits.data() + digits.size() && std::isfinite(real);
  return is_real && base == 10 ? Value(whole_of(real)) : otherwise;
}

Value to_real(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"default"});
  if (value.is_undefined()) fail_undefined(value);
  if (const double* number = value.number()) return *number;
  if (const auto whole = value.whole()) return static_cast<double>(*whole);
  if (value.text() != nullptr) {
    Limits::work(value.text()->size());
    const ByteRange range = stripped(value.text()->str(), Ends::kBoth);
    const std::string_view digits =
        std::string_view(value.text()->str()).substr(range.begin, range.end - range.begin);
    double number = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (!digits.empty() && parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size())
      return number;
  }
  return values[0].is_undefined() ? Value(0.0) : values[0];
}

Value absolute(const Value& value) {
  const Value zero = int64_t{0};
  return compare("<", value, zero) ? negative(value) : value;
}

Value rounded(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"precision", "method"});
  const int64_t precision = given(values[0]) ? as_integer(values[0]) : 0;
  const std::string method = given(values[1]) ? as_text(values[1]).str() : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (value.is_undefined()) fail_undefined(value);
  if (value.number() == nullptr && !value.whole()) fail("needs a number");
  const double number =
      value.number() != nullptr ? *value.number() : static_cast<double>(*value.whole());
  if (method == "ceil") return std::ceil(number * scale) / scale;
  if (method == "floor") return std::floor(number * scale) / scale;
  if (method != "common") fail("method must be common, ceil or floor");
  return std::nearbyint(number * scale) / scale;
}

Value extreme(const Value& value, const Arguments& arguments, bool smallest) {
  const auto values = bind(arguments, {"case_sensitive", "attribute"});
  const Values items = items_of(value);
  const auto key = [&](const Value& item) {
    return sort_key(given(values[1]) ? attribute_path(item, values[1]) : item, values[0].truth());
  };
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  Value best = items.front();
  for (const Value& item : items) {
    if (compare(smallest ? "<" : ">", key(item), key(best))) best = item;
  }
  return best;
}

Value sum(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"attribute", "start"});
  Value total = values[1].is_undefined() ? Value(int64_t{0}) : values[1];
  for (const Value& item : items_of(value)) {
    total = arithmetic("+", total, given(values[0]) ? attribute_path(item, values[0]) : item);
  }
  return total;
}

Value unique(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"case_sensitive", "attribute"});
  Values kept;
  Values seen;
  for (const Value& item : items_of(value)) {
    const Value key =
        sort_key(given(values[1]) ? attribute_path(item, values[1]) : item, values[0].truth());
    if (std::ranges::any_of(seen, [&](const Value& other) { return equal(other, key); })) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return as_generator(std::move(kept));
}

Value batch(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = as_integer(values[0]);
  if (size < 1) fail("linecount must be at least 1");
  List lines;
  List line;
  for (Value& item : items_of(value)) {
    if (std::ssize(line.items) == size) lines.items.emplace_back(std::exchange(line, {}));
    line.items.push_back(std::move(item));
  }
  if (line.items.empty()) return as_generator(std::move(lines.items));
  if (given(values[1]) && std::ssize(line.items) < size) {
    Limits::check_items(static_cast<size_t>(size));
    line.items.resize(static_cast<size_t>(size), values[1]);
  }
  lines.items.emplace_back(std::move(line));
  return as_generator(std::move(lines.items));
}

// Groups of items whose attribute is equal, sorted by it. Without case_sensitive, the spelling of
// the first one names the group.
Value group_by(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = values[2].truth();
  const auto key = [&](const Value& item) {
    Value found = attribute_path(item, values[0]);
    return found.is_undefined() && given(values[1]) ? values[1] : found;
  };
  List groups;
  Value grouper;
  List group;
  const auto add = [&] {
    groups.items.emplace_back(List{
        .items = {grouper, Value(std::exchange(group, {}))}, .is_tuple = true, .is_group = true});
  };
  for (Value& item : sorted(items_of(value), false, case_sensitive, key)) {
    const Value own = key(item);
    if (!group.items.empty() &&
        !equal(sort_key(own, case_sensitive), sort_key(grouper, case_sensitive))) {
      add();
    }
    if (group.items.empty()) grouper = own;
    group.items.push_back(std::move(item));
  }
  if (!group.items.empty()) add();
  return groups;
}

TracedText truncate(const TracedText& text, const Arguments& arguments) {
  const auto values = bind(arguments, {"length", "killwords", "end", "leeway"});
  const int64_t most = given(values[0]) ? as_integer(values[0]) : 255;
  const TracedText end = given(values[2]) ? as_text(values[2]) : TracedText("...");
  const int64_t leeway = given(values[3]) ? as_integer(values[3]) : 5;
  const int64_t kept = most - length(end.str());
  if (kept < 0) fail("expected length >= " + std::to_string(length(end.str())));
  if (leeway < 0) fail("expected leeway >= 0");
  if (length(text.str()) - leeway <= most) return text;
  TracedText result = text.slice(0, byte_offset(text.str(), kept));
  if (!values[1].truth()) {
    const size_t space = result.str().rfind(' ');
    if (space != std::string::npos) result = result.slice(0, space);
  }
  result.append(end);
  return result;
}

// Runs of letters, digits and underscores.
int64_t word_count(const std::string& text) {
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    at = next_character(text, at);
    const bool is_word = text[begin] == '_' ||
                         is_all(std::string_view(text).substr(begin, at - begin), Class::kAlnum);
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return count;
}

Value end_item(const Value& value, bool first) {
  if (const List* generator = value.generator()) {
    if (!first) fail("'generator' object is not reversible");
    size_t& taken = *generator->taken;
    if (taken < generator->items.size()) return generator->items[taken++];
    return Value::undefined("No first item, sequence was empty.");
  }
  Values items = items_of(value);
  if (items.empty())
    return Value::undefined(first ? "No first item, sequence was empty."
                                  : "No last item, sequence was empty.");
  return first ? items.front() : items.back();
}

Value reversed(const Value& value) {
  Values items = items_of(value);
  std::ranges::reverse(items);
  if (value.generator() != nullptr) return as_list(std::move(items));
  if (value.text() == nullptr) return as_generator(std::move(items));
  return join_items(items, TracedText(), false);
}

Value default_filter(const Value& value, const Arguments& arguments) {
  const auto values = bind(arguments, {"default_value", "boolean"});
  if (value.is_undefined() || (values[1].truth() && !value.truth())) {
    return arguments.positional.empty() && arguments.named.empty() ? Value("") : values[0];
  }
  return value;
}

#define FT_FILTER(expression)                                                    \
  [](const Value& value, [[maybe_unused]] const Arguments& arguments) -> Value { \
    return expression;                                                           \
  }

const Filter kFilters[] = {
    {"tojson", to_json_filter},
    {"trim", FT_FILTER(strip(to_text(value), Ends::kBoth, bind(arguments, {"chars"})[0]))},
    {"length", FT_FILTER((take_none(arguments), size_of(value)))},
    {"count", FT_FILTER((take_none(arguments), size_of(value)))},
    {"string", FT_FILTER((take_none(arguments), to_text(value)))},
    {"safe", FT_FILTER((take_none(arguments), to_text(value).as_markup()))},
    {"escape", FT_FILTER((take_none(arguments), escaped(to_text(value)).as_markup()))},
    {"e", FT_FILTER((take_none(arguments), escaped(to_text(value)).as_markup()))},
    {"default", FT_FILTER(default_filter(value, arguments))},
    {"d", FT_FILTER(default_filter(value, arguments))},
    {"items", items_filter},
    {"join", join_filter},
    {"map", map},
    {"upper", FT_FILTER((take_none(arguments), with_case(to_text(value), Case::kUpper)))},
    {"lower", FT_FILTER((take_none(arguments), with_case(to_text(value), Case::kLower)))},
    {"capitalize",
     FT_FILTER((take_none(arguments), with_case(to_text(value), Case::kCapitalized)))},
    {"title", FT_FILTER((take_none(arguments), title(to_text(value))))},
    {"list", FT_FILTER((take_none(arguments), as_list(items_of(value))))},
    {"dictsort", dict_sort},
    {"replace", FT_FILTER(replace_method(to_text(value), arguments))},
    {"select", FT_FILTER(select(value, arguments, true, false))},
    {"reject", FT_FILTER(select(value, arguments, false, false))},
    {"selectattr", FT_FILTER(select(value, arguments, true, true))},
    {"rejectattr", FT_FILTER(select(value, arguments, false, true))},
    {"first", FT_FILTER(end_item(value, true))},
    {"last", FT_FILTER(end_item(value, false))},
    {"reverse", FT_FILTER(reversed(value))},
    {"sort", sort},
    {"unique", unique},
    {"int", to_integer},
    {"float", to_real},
    {"abs", FT_FILTER((take_none(arguments), absolute(value)))},
    {"round", FT_FILTER(rounded(value, arguments))},
    {"min", FT_FILTER(extreme(value, arguments, true))},
    {"max", FT_FILTER(extreme(value, arguments, false))},
    {"sum", sum},
    {"indent", FT_FILTER(indent(to_text(value), arguments))},
    {"batch", batch},
    {"groupby", group_by},
    {"truncate", FT_FILTER(truncate(to_text(value), arguments))},
    {"wordcount", FT_FILTER((take_none(arguments), word_count(to_text(value).str())))},
    {"attr", FT_FILTER(attribute_of(value, bind(arguments, {"name"}, 1)[0]))},
};
#undef FT_FILTER

bool is_number(const Value& value) { return value.number() != nullptr || value.whole(); }

Value operand(const Arguments& arguments) { return bind(arguments, {"other"}, 1)[0]; }

bool is_same(const Value& value, const Value& other) {
  const bool same_type = std::string_view(value.type_name()) == other.type_name();
  return same_type && equal(value, other);
}

int64_t remainder(const Value& value, const Value& divisor) {
  return as_integer(arithmetic("%", Value(as_integer(value)), divisor));
}

#define FT_TEST(expression) \
  [](const Value& value, [[maybe_unused]] const Arguments& arguments) -> bool { return expression; }

const Test kTests[] = {
    {"defined", FT_TEST(!value.is_undefined())},
    {"undefined", FT_TEST(value.is_undefined())},
    {"none", FT_TEST(value.is_none())},
    {"string", FT_TEST(value.text() != nullptr)},
    {"mapping", FT_TEST(value.dict() != nullptr)},
    {"iterable",
     FT_TEST(value.is_undefined() || value.text() != nullptr || value.list() != nullptr ||
             value.generator() != nullptr || value.dict() != nullptr)},
    {"sequence", FT_TEST(value.is_undefined() || value.text() != nullptr ||
                         value.list() != nullptr || value.dict() != nullptr)},
    {"boolean", FT_TEST(value.flag() != nullptr)},
    {"true", FT_TEST(value.flag() != nullptr && *value.flag())},
    {"false", FT_TEST(value.flag() != nullptr && !*value.flag())},
    {"number", FT_TEST(is_number(value))},
    {"integer", FT_TEST(value.integer() != nullptr)},
    {"float", FT_TEST(value.number() != nullptr)},
    {"callable", FT_TEST(value.callable() != nullptr || value.is_undefined())},
    {"odd", FT_TEST(remainder(value, Value(int64_t{2})) == 1)},
    {"even", FT_TEST(remainder(value, Value(int64_t{2})) == 0)},
    {"divisibleby", FT_TEST(remainder(value, operand(arguments)) == 0)},
    {"eq", FT_TEST(equal(value, operand(arguments)))},
    {"equalto", FT_TEST(equal(value, operand(arguments)))},
    {"==", FT_TEST(equal(value, operand(arguments)))},
    {"ne", FT_TEST(!equal(value, operand(arguments)))},
    {"!=", FT_TEST(!equal(value, operand(arguments)))},
    {"lt", FT_TEST(compare("<", value, operand(arguments)))},
    {"lessthan", FT_TEST(compare("<", value, operand(arguments)))},
    {"<", FT_TEST(compare("<", value, operand(arguments)))},
    {"le", FT_TEST(compare("<=", value, operand(arguments)))},
    {"<=", FT_TEST(compare("<=", value, operand(arguments)))},
    {"gt", FT_TEST(compare(">", value, operand(arguments)))},
    {"greaterthan", FT_TEST(compare(">", value, operand(arguments)))},
    {">", FT_TEST(compare(">", value, operand(arguments)))},
    {"ge", FT_TEST(compare(">=", value, operand(arguments)))},
    {">=", FT_TEST(compare(">=", value, operand(arguments)))},
    {"in", FT_TEST(contains(operand(arguments), value))},
    {"lower", FT_TEST(is_all(to_text(value).str(), Class::kLower))},
    {"upper", FT_TEST(is_all(to_text(value).str(), Class::kUpper))},
    {"sameas", FT_TEST(is_same(value, operand(arguments)))},
    {"filter", FT_TEST(value.text() != nullptr && find_filter(value.text()->str()) != nullptr)},
    {"test", FT_TEST(value.text() != nullptr && find_test(value.text()->str()) != nullptr)},
};
#undef FT_TEST

}  // namespace

std::vector<std::string_view> filter_names() {
  std::vector<std::string_view> names;
  for (const Filter& filter : kFilters) names.push_back(filter.name);
  return names;
}

std::vector<std::string_view> test_names() {
  std::vector<std::string_view> names;
  for (const Test& test : kTests) names.push_back(test.name);
  return names;
}

bool takes_markup(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "safe", "escape", "e", "string", "length", "count", "default", "d", "tojson"};
  return std::ranges::find(kNames, name) != kNames.end();
}

const Filter* find_filter(std::string_view name) {
  const auto found = std::ranges::find(kFilters, name, &Filter::name);
  return found == std::end(kFilters) ? nullptr : found;
}

const Test* find_test(std::string_view name) {
  const auto found = std::ranges::find(kTests, name, &Test::name);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace finetune::chat
