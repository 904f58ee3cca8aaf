// SPDX-License-Identifier: MIT
#include "finetune/chat/value.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/utf8.h"

namespace finetune::chat {

constexpr size_t kMemoryOfFunction = 96;  // what std::function allocates, at most

Value Value::undefined(std::string name) {
  Value value;
  value.value_ = Undefined{counted(TracedText(std::move(name)))};
  return value;
}

Value::Value(List list) {
  Limits::check_items(list.items.size());
  Limits::work(list.items.size());
  int nesting = 0;
  for (const Value& item : list.items) nesting = std::max(nesting, item.nesting());
  list.nesting = Limits::nested(nesting + 1);
  value_ = counted(std::move(list));
}

Value::Value(Dict dict) {
  Limits::check_items(dict.items.size());
  Limits::work(dict.items.size());
  int nesting = 0;
  for (const auto& [key, item] : dict.items) {
    nesting = std::max({nesting, key.nesting(), item.nesting()});
  }
  dict.nesting = Limits::nested(nesting + 1);
  value_ = counted(std::move(dict));
}

Value::Value(Callable callable) {
  callable.nesting = Limits::nested(callable.nesting + 1);
  callable.memory.set(kMemoryOfFunction + callable.name.size());
  value_ = counted(std::move(callable));
}

Value::Value(Object object) {
  object.nesting = Limits::nested(object.nesting + 1);
  object.memory.set(kMemoryOfFunction + object.name.size());
  value_ = counted(std::move(object));
}

int Value::nesting() const {
  if (const List* value = pointer<const List>()) return value->nesting;
  if (const Dict* value = dict()) return value->nesting;
  if (const Callable* value = callable()) return value->nesting;
  if (const Object* value = object()) return value->nesting;
  return 0;
}

namespace {

// `depth`: levels around `json`, counted on the way down, since the recursion has to end.
Value value_of(const nlohmann::ordered_json& json, Source source, int depth) {
  Limits::nested(depth);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::null:
      return None{};
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        throw Error(ErrorKind::kData, "the integer " + json.dump() + " needs more than 64 bits");
      }
      return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return TracedText(json.get<std::string>(), source);
    case nlohmann::ordered_json::value_t::array: {
      List list;
      list.items.reserve(json.size());
      for (const auto& item : json) list.items.push_back(value_of(item, source, depth + 1));
      return list;
    }
    default: {
      Dict dict;
      dict.items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        dict.items.emplace_back(TracedText(key, source), value_of(item, source, depth + 1));
      }
      return dict;
    }
  }
}

}  // namespace

Value Value::from_json(const nlohmann::ordered_json& json, Source source) {
  return value_of(json, source, 0);
}

std::optional<int64_t> Value::whole() const {
  if (const bool* value = flag()) return *value ? 1 : 0;
  if (const int64_t* value = integer()) return *value;
  return std::nullopt;
}

std::string Value::undefined_name() const {
  const auto* undefined = std::get_if<Undefined>(&value_);
  return undefined == nullptr || !undefined->name ? "a value" : undefined->name->str();
}

const char* Value::type_name() const {
  static constexpr std::array kNames = {"Undefined", "NoneType", "bool",       "int",
                                        "float",     "str",      "list",       "dict",
                                        "Namespace", "function", "LoopContext"};
  if (generator() != nullptr) return "generator";
  const List* items = list();
  return items != nullptr && items->is_tuple ? "tuple" : kNames[value_.index()];
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* value = flag()) return *value;
  if (const int64_t* value = integer()) return *value != 0;
  if (const double* value = number()) return *value != 0.0;
  if (const TracedText* value = text()) return !value->empty();
  if (const List* value = list()) return !value->items.empty();
  if (const Dict* value = dict()) return !value->items.empty();
  return true;
}

namespace {

std::optional<double> real(const Value& value) {
  if (const double* number = value.number()) return *number;
  if (const auto whole = value.whole()) return static_cast<double>(*whole);
  return std::nullopt;
}

// As in Python, an object equals itself. Values may share parts, so that the work is not bounded by
// the memory: each comparison counts.
bool equal_items(const List& a, const List& b) {
  if (&a == &b) return true;
  return a.is_tuple == b.is_tuple && std::ranges::equal(a.items, b.items, equal);
}

bool equal_items(const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  return a.items.size() == b.items.size() && std::ranges::all_of(a.items, [&](const auto& item) {
           const Value* other = find(b, item.first);
           return other != nullptr && equal(item.second, *other);
         });
}

bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string hex(char32_t c, int digits) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int i = digits - 1; i >= 0; --i) text += kDigits[(c >> (4 * i)) & 15];
  return text;
}

std::string escaped_unprintable(char32_t c) {
  if (c < 0x100) return "\\x" + hex(c, 2);
  return c < 0x10000 ? "\\u" + hex(c, 4) : "\\U" + hex(c, 8);
}

// Appends `text` with each character replaced by what `spell_character` returns; an empty result
// keeps the character.
template <class Spell>
void append_escaped(TracedText& to, const TracedText& text, const Spell& spell_character) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    Limits::work(8);
    const std::string other = spell_character(utf8::decode(text.str(), at));
    if (other.empty()) continue;
    to.append(text, begin, here);
    to.append(other, text.source_at(here));
    begin = at;
  }
  to.append(text, begin, text.size());
}

void append_repr(TracedText& to, const TracedText& text) {
  const bool has_single = text.str().find('\'') != std::string::npos;
  const bool has_double = text.str().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  to.append({&quote, 1});
  append_escaped(to, text, [&](char32_t c) -> std::string {
    if (c == static_cast<char32_t>(quote) || c == '\\') return {'\\', static_cast<char>(c)};
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    return is_printable(c) ? "" : escaped_unprintable(c);
  });
  to.append({&quote, 1});
}

void append_repr(TracedText& to, const Value& value) {
  if (const TracedText* text = value.text()) {
    if (text->is_markup()) to.append("Markup(");
    append_repr(to, *text);
    if (text->is_markup()) to.append(")");
    return;
  }
  if (value.generator() != nullptr) {
    // Python writes its address, which no model should learn.
    throw Error(ErrorKind::kData,
                "a generator (of map, select and the like) has no text; add |list");
  }
  if (const List* list = value.list()) {
    to.append(list->is_tuple ? "(" : "[");
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) to.append(", ");
      append_repr(to, list->items[i]);
    }
    to.append(!list->is_tuple ? "]" : list->items.size() == 1 ? ",)" : ")");
  } else if (const Dict* dict = value.dict()) {
    to.append("{");
    for (size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) to.append(", ");
      append_repr(to, dict->items[i].first);
      to.append(": ");
      append_repr(to, dict->items[i].second);
    }
    to.append("}");
  } else if (value.is_undefined()) {
    to.append("Undefined");
  } else {
    to.append(to_text(value));
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonFormat& format) : format_(format) {}

  void write(const Value& value, int depth) {
    if (const TracedText* text = value.text()) {
      write_text(*text);
    } else if (const List* list = value.list()) {
      write_items(list->items, "[]", depth, [&](const Value& item) { write(item, depth + 1); });
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, depth);
    } else if (const double* number = value.number();
               number != nullptr && !std::isfinite(*number)) {
      out_.append(std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity");
    } else {
      out_.append(scalar(value));
    }
  }
  TracedText take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.flag()) return *flag ? "true" : "false";
    if (value.integer() != nullptr || value.number() != nullptr) return to_text(value).str();
    throw Error(ErrorKind::kData,
                std::string("Object of type ") + value.type_name() + " is not JSON serializable");
  }

  void write_text(const TracedText& text) {
    out_.append("\"");
    append_escaped(out_, text, [&](char32_t c) -> std::string {
      switch (c) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\b':
          return "\\b";
        case '\f':
          return "\\f";
        default:
          break;
      }
      if (c < 0x20 || (format_.ensure_ascii && c > 0x7E && c < 0x10000)) {
        return "\\u" + hex(c, 4);
      }
      if (!format_.ensure_ascii || c < 0x10000) return "";
      const char32_t rest = c - 0x10000;
      return "\\u" + hex(0xD800 + (rest >> 10), 4) + "\\u" + hex(0xDC00 + (rest & 0x3FF), 4);
    });
    out_.append("\"");
  }

  void new_line(int depth) {
    if (!format_.indent) return;
    out_.append("\n");
    for (int i = 0; i < depth; ++i) out_.append(*format_.indent);
  }

  template <class Items, class Write>
  void write_items(const Items& items, std::string_view brackets, int depth, const Write& write) {
    out_.append(brackets.substr(0, 1));
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_.append(format_.item_separator);
      first = false;
      new_line(depth + 1);
      write(item);
    }
    if (!first) new_line(depth);
    out_.append(brackets.substr(1));
  }

  void write_dict(const Dict& dict, int depth) {
    Counted<std::pair<Value, Value>> sorted;
    if (format_.sort_keys) {
      sorted = dict.items;
      for (const auto& item : sorted) {
        if (item.first.text() == nullptr)
          throw Error(ErrorKind::kData, "only keys that are text can be sorted");
      }
      std::ranges::stable_sort(sorted, {}, [](const auto& item) -> const std::string& {
        Limits::work(8 + item.first.text()->size() / 8);
        return item.first.text()->str();
      });
    }
    write_items(format_.sort_keys ? sorted : dict.items, "{}", depth, [&](const auto& item) {
      const TracedText* key = item.first.text();
      write_text(key != nullptr ? *key : TracedText(scalar(item.first)));
      out_.append(format_.key_separator);
      write(item.second, depth + 1);
    });
  }

  const JsonFormat& format_;
  TracedText out_;
};

}  // namespace

bool equal(const Value& a, const Value& b) {
  Limits::work(16);
  if (const TracedText* text = a.text()) {
    if (b.text() == nullptr || text->size() != b.text()->size()) return false;
    Limits::work(text->size() / 8);
    return text->str() == b.text()->str();
  }
  if (a.whole() && b.whole()) return *a.whole() == *b.whole();
  if (real(a) && real(b)) return *real(a) == *real(b);
  if (a.list() != nullptr && b.list() != nullptr) return equal_items(*a.list(), *b.list());
  if (a.dict() != nullptr && b.dict() != nullptr) return equal_items(*a.dict(), *b.dict());
  if (a.generator() != nullptr) return a.generator() == b.generator();
  if (a.members() != nullptr) return a.members() == b.members();
  if (a.callable() != nullptr) return a.callable() == b.callable();
  if (a.object() != nullptr) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

const Value* find(const Dict& dict, const Value& key) {
  const auto found =
      std::ranges::find_if(dict.items, [&](const auto& item) { return equal(item.first, key); });
  return found == dict.items.end() ? nullptr : &found->second;
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto found = std::ranges::find_if(dict.items, [&](const auto& item) {
    const TracedText* text = item.first.text();
    Limits::work(4);
    return text != nullptr && text->str() == key;
  });
  return found == dict.items.end() ? nullptr : &found->second;
}

TracedText to_text(const Value& value) {
  if (const TracedText* text = value.text()) return *text;
  if (value.is_undefined()) return {};
  if (value.is_none()) return TracedText("None");
  if (const bool* flag = value.flag()) return TracedText(*flag ? "True" : "False");
  if (const int64_t* number = value.integer()) return TracedText(std::to_string(*number));
  if (const double* number = value.number()) return TracedText(format_double(*number));
  if (const Callable* callable = value.callable()) {
    return TracedText("<function " + callable->name + ">");
  }
  if (const Object* object = value.object()) return TracedText("<" + object->name + ">");
  if (value.members() != nullptr) return TracedText("<Namespace>");
  return to_repr(value);
}

TracedText to_repr(const Value& value) {
  TracedText text;
  append_repr(text, value);
  return text;
}

TracedText to_json(const Value& value, const JsonFormat& format) {
  JsonWriter writer(format);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace finetune::chat
