// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "chat/arguments.h"
#include "chat/characters.h"
#include "chat/formatting.h"
#include "finetune/base/utf8.h"

namespace finetune::chat {

Values bind(const Arguments& arguments, std::initializer_list<std::string_view> names,
            size_t required) {
  if (arguments.positional.size() > names.size()) {
    fail("takes at most " + std::to_string(names.size()) + " arguments, not " +
         std::to_string(arguments.positional.size()));
  }
  Values values(names.size());
  std::vector<bool> is_set(names.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values[i] = arguments.positional[i];
    is_set[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (found == names.size()) fail("has no argument '" + name + "'");
    if (is_set[found]) fail("got the argument '" + name + "' twice");
    values[found] = value;
    is_set[found] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!is_set[i]) fail("lacks the argument '" + std::string(names.begin()[i]) + "'");
  }
  return values;
}

void take_none(const Arguments& arguments) { (void)bind(arguments, {}); }

const TracedText& as_text(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.text() == nullptr) fail(std::string("must be text, not ") + value.type_name());
  return *value.text();
}

int64_t as_integer(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  const auto whole = value.whole();
  if (!whole) fail(std::string("must be an integer, not ") + value.type_name());
  return *whole;
}

Values items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.list()) {
    Limits::check_items(list->items.size());
    return list->items;
  }
  Values items;
  if (const List* generator = value.generator()) {
    const size_t first = std::exchange(*generator->taken, generator->items.size());
    Limits::check_items(generator->items.size() - first);
    for (size_t i = first; i < generator->items.size(); ++i) items.push_back(generator->items[i]);
    return items;
  }
  if (const Dict* dict = value.dict()) {
    Limits::check_items(dict->items.size());
    for (const auto& item : dict->items) items.push_back(item.first);
    return items;
  }
  const TracedText* text = value.text();
  if (text == nullptr) fail(std::string("'") + value.type_name() + "' object is not iterable");
  Limits::check_items(text->size());
  for (size_t at = 0; at < text->size();) {
    const size_t begin = at;
    at = next_character(text->str(), at);
    items.emplace_back(text->slice(begin, at));
  }
  return items;
}

TracedText escaped(const TracedText& text) {
  if (text.is_markup()) return text;
  TracedText result;
  size_t begin = 0;
  static constexpr std::pair<char, std::string_view> kEntities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
  Limits::work(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    for (const auto& [c, entity] : kEntities) {
      if (text.str()[at] != c) continue;
      result.append(text, begin, at);
      result.append(entity, text.source_at(at));
      begin = at + 1;
    }
  }
  result.append(text, begin, text.size());
  return result;
}

int64_t size_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const TracedText* text = value.text()) return length(text->str());
  if (const List* list = value.list()) return std::ssize(list->items);
  if (const Dict* dict = value.dict()) return std::ssize(dict->items);
  fail(std::string("object of type '") + value.type_name() + "' has no len()");
}

namespace {

double as_real(const Value& value) {
  if (const double* number = value.number()) return *number;
  return static_cast<double>(*value.whole());
}

bool is_number(const Value& value) { return value.number() != nullptr || value.whole(); }

[[noreturn]] void fail_overflow() { fail("the result needs more than 64 bits"); }

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

// Division and remainder that round towards minus infinity.
int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (a == INT64_MIN && b == -1) fail_overflow();
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;
  return a - floor_divide(a, b) * b;
}

Value of_integers(std::string_view name, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (name == "+") overflows = __builtin_add_overflow(a, b, &result);
  if (name == "-") overflows = __builtin_sub_overflow(a, b, &result);
  if (name == "*") overflows = __builtin_mul_overflow(a, b, &result);
  if (overflows) fail_overflow();
  if (name == "//") return floor_divide(a, b);
  if (name == "%") {
    if (b == 0) fail("division by zero");
    return floor_remainder(a, b);
  }
  if (name == "**" && b >= 0) return power(a, b);
  if (name == "**") return std::pow(static_cast<double>(a), static_cast<double>(b));
  if (name == "/") {
    if (b == 0) fail("division by zero");
    return static_cast<double>(a) / static_cast<double>(b);
  }
  return result;
}

Value of_reals(std::string_view name, double a, double b) {
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "**") return std::pow(a, b);
  if (b == 0.0) fail("division by zero");
  if (name == "/") return a / b;
  if (name == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0.0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value repeated(const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const TracedText* text = value.text()) {
    if (text->empty() || count == 0) return TracedText();
    if (count > Limits::kMaxBytes / text->size()) Limits::check_text(Limits::kMaxBytes + 1);
    // Doubled, so that many copies of a short text take few steps.
    TracedText result;
    TracedText power = *text;
    for (size_t rest = count;;) {
      if ((rest & 1) != 0) result.append(power);
      rest >>= 1;
      if (rest == 0) return result;
      const TracedText half = power;
      power.append(half);
    }
  }
  List result{.items = {}, .is_tuple = value.list()->is_tuple};
  const auto& items = value.list()->items;
  if (!items.empty() && count > Limits::kMaxItems / items.size()) {
    Limits::check_items(Limits::kMaxItems + 1);
  }
  Limits::check_items(items.size() * count);
  for (size_t i = 0; i < count && !items.empty(); ++i) {
    result.items.insert(result.items.end(), items.begin(), items.end());
  }
  return result;
}

[[noreturn]] void fail_operands(std::string_view name, const Value& a, const Value& b) {
  fail("unsupported operand types for " + std::string(name) + ": '" + a.type_name() + "' and '" +
       b.type_name() + "'");
}

}  // namespace

Value arithmetic(std::string_view name, const Value& a, const Value& b) {
  if (name == "%" && a.text() != nullptr && a.text()->is_markup()) {
    fail("% on a text of |safe is not available");
  }
  if (name == "%" && a.text() != nullptr) return percent_formatted(*a.text(), b);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.whole() && b.whole()) return of_integers(name, *a.whole(), *b.whole());
  if (is_number(a) && is_number(b)) return of_reals(name, as_real(a), as_real(b));
  if (name == "+" && a.text() != nullptr && b.text() != nullptr) {
    Limits::check_text(a.text()->size() + b.text()->size());
    const bool is_markup = a.text()->is_markup() || b.text()->is_markup();
    if (is_markup) {
      TracedText text = escaped(*a.text());
      text.append(escaped(*b.text()));
      return text.as_markup();
    }
    TracedText text = *a.text();
    text.append(*b.text());
    return text;
  }
  const List* list = a.list();
  if (name == "+" && list != nullptr && b.list() != nullptr &&
      list->is_tuple == b.list()->is_tuple) {
    Limits::check_items(list->items.size() + b.list()->items.size());
    List result = *list;
    result.items.insert(result.items.end(), b.list()->items.begin(), b.list()->items.end());
    return result;
  }
  const auto repeats = [](const Value& value) {
    return value.text() != nullptr || value.list() != nullptr;
  };
  if (name == "*" && repeats(a) && b.whole()) return repeated(a, *b.whole());
  if (name == "*" && repeats(b) && a.whole()) return repeated(b, *a.whole());
  fail_operands(name, a, b);
}

Value negative(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (const auto whole = value.whole()) {
    if (*whole == INT64_MIN) fail_overflow();
    return -*whole;
  }
  if (const double* number = value.number()) return -*number;
  fail(std::string("bad operand type for unary -: '") + value.type_name() + "'");
}

namespace {

// Returns -1, 0 or 1; nullopt for NaN. Throws for types without an order.
std::optional<int> order_of(std::string_view name, const Value& a, const Value& b) {
  Limits::work(24);  // with the moves of a sort
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.whole() && b.whole()) return (*a.whole() > *b.whole()) - (*a.whole() < *b.whole());
  if (is_number(a) && is_number(b)) {
    const double x = as_real(a);
    const double y = as_real(b);
    if (std::isnan(x) || std::isnan(y)) return std::nullopt;
    return (x > y) - (x < y);
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    Limits::work(std::min(a.text()->size(), b.text()->size()) / 8);
    const int order = a.text()->str().compare(b.text()->str());
    return (order > 0) - (order < 0);
  }
  if (a.list() != nullptr && b.list() != nullptr && a.list()->is_tuple == b.list()->is_tuple) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return order_of(name, x[i], y[i]);
    }
    return (x.size() > y.size()) - (x.size() < y.size());
  }
  fail("'" + std::string(name) + "' not supported between '" + a.type_name() + "' and '" +
       b.type_name() + "'");
}

}  // namespace

bool compare(std::string_view name, const Value& a, const Value& b) {
  if (name == "==") return equal(a, b);
  if (name == "!=") return !equal(a, b);
  if (name == "in") return contains(b, a);
  if (name == "not in") return !contains(b, a);
  const auto order = order_of(name, a, b);
  if (!order) return false;
  if (name == "<") return *order < 0;
  if (name == "<=") return *order <= 0;
  return name == ">" ? *order > 0 : *order >= 0;
}

bool contains(const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const TracedText* text = container.text()) {
    if (item.text() == nullptr) {
      fail(std::string("'in <string>' requires string as left operand, not ") + item.type_name());
    }
    return find_text(text->str(), item.text()->str()) != std::string::npos;
  }
  if (const List* list = container.list()) {
    return std::ranges::any_of(list->items, [&](const Value& other) { return equal(other, item); });
  }
  if (const Dict* dict = container.dict()) return find(*dict, item) != nullptr;
  if (const List* generator = container.generator()) {
    while (*generator->taken < generator->items.size()) {
      if (equal(generator->items[(*generator->taken)++], item)) return true;
    }
    return false;
  }
  fail(std::string("argument of type '") + container.type_name() + "' is not iterable");
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (value.is_undefined()) fail_undefined(value);
  const TracedText* text = value.text();
  const List* list = value.list();
  if (text == nullptr && list == nullptr) return Value::undefined("slice");
  const int64_t size = size_of(value);
  const auto given = [](const Value& bound) { return !bound.is_none() && !bound.is_undefined(); };
  const int64_t stride = given(step) ? as_integer(step) : 1;
  if (stride == 0) fail("slice step cannot be zero");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& given_value, int64_t otherwise) {
    if (!given(given_value)) return otherwise;
    int64_t index = as_integer(given_value);
    if (index < 0) index = index < -size ? low : index + size;
    return std::clamp(index, low, high);
  };
  const int64_t first = bound(begin, stride > 0 ? 0 : size - 1);
  const int64_t last = bound(end, stride > 0 ? size : -1);
  if (text != nullptr && stride == 1) {
    if (first >= last) return TracedText();
    const size_t from = byte_offset(text->str(), first);
    const size_t to = from + byte_offset(std::string_view(text->str()).substr(from), last - first);
    return text->slice(from, to);
  }
  const Values items = items_of(value);
  List result{.items = {}, .is_tuple = list != nullptr && list->is_tuple};
  TracedText joined;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
    Limits::work(4);
    const Value& item = items[static_cast<size_t>(i)];
    if (text != nullptr) {
      joined.append(*item.text());
    } else {
      result.items.push_back(item);
    }
    if (stride > size || -stride > size) break;
  }
  return text != nullptr ? Value(std::move(joined)) : Value(std::move(result));
}

}  // namespace finetune::chat
