// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "finetune/chat/limits.h"
#include "finetune/chat/traced_text.h"

namespace finetune::chat {

class Value;
struct Arguments;

struct None {
  bool operator==(const None&) const = default;
};
// A variable or member that does not exist: empty, false, without items; any other use is an error
// that names it (jinja2.Undefined).
struct Undefined {
  std::shared_ptr<const TracedText> name;  // null: unnamed
};
// Value containers count their memory (limits.h). `nesting`: levels of values within values, set
// by Value's constructors, which refuse more than Limits::kMaxNesting: destruction, comparison and
// output recurse.
using Values = Counted<Value>;
struct List {
  Values items;
  bool is_tuple = false;  // only its spelling differs
  bool is_group = false;  // of groupby(): its two items are also members, grouper and list
  // Of a generator, which map(), select() and others return: how many items were taken. As in
  // Python a generator is true, has no length, text or JSON, and gives each item once.
  std::shared_ptr<size_t> taken = {};
  int nesting = 0;
};
// Keys keep their order. Any value may be a key, as in Python, but most are text.
struct Dict {
  Counted<std::pair<Value, Value>> items;
  int nesting = 0;
};
// namespace(): the only object that a template can change. The interpreter keeps it alive until
// the end of the rendering, so that a chain of them is not destroyed recursively.
struct Namespace {
  Counted<std::pair<std::string, Value>> members;
  CountedMemory names = {};
};
struct Callable {
  std::string name;
  std::function<Value(const Arguments&)> call;
  int nesting = 0;  // of the values that `call` holds
  CountedMemory memory = {};
};
// An object with its own named members: `loop`, `cycler`.
struct Object {
  std::string name;
  std::function<std::optional<Value>(std::string_view)> member;
  std::function<Value(const Arguments&)> call = {};  // empty: it cannot be called
  int nesting = 0;                                   // of the values that `member` holds
  CountedMemory memory = {};
};

// A value of the template language, with Python's meaning. Cheap to copy; immutable except for
// Namespace.
class Value {
 public:
  using Text = std::shared_ptr<const TracedText>;
  using Variant =
      std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
                   std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                   std::shared_ptr<const Callable>, std::shared_ptr<const Object>>;

  Value() = default;  // undefined
  Value(None none) : value_(none) {}
  Value(bool flag) : value_(flag) {}
  Value(int64_t number) : value_(number) {}
  Value(double number) : value_(number) {}
  Value(TracedText text) : value_(counted(std::move(text))) {}
  Value(std::string text) : Value(TracedText(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  // Throw Error(kData) for too many levels of values, or more items than a rendering may make.
  Value(List list);
  Value(Dict dict);
  Value(std::shared_ptr<Namespace> members) : value_(std::move(members)) {}
  Value(Callable callable);
  Value(Object object);
  [[nodiscard]] static Value undefined(std::string name);

  // Converts JSON. Text gets `source`. Throws Error(kData) for an integer that 64 bits cannot hold
  // and for too many levels.
  [[nodiscard]] static Value from_json(const nlohmann::ordered_json& json, Source source = {});

  template <class T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(value_);
  }
  [[nodiscard]] bool is_undefined() const { return is<Undefined>(); }
  [[nodiscard]] bool is_none() const { return is<None>(); }
  [[nodiscard]] const bool* flag() const { return std::get_if<bool>(&value_); }
  [[nodiscard]] const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  [[nodiscard]] const double* number() const { return std::get_if<double>(&value_); }
  [[nodiscard]] const TracedText* text() const { return pointer<const TracedText>(); }
  [[nodiscard]] const List* list() const {
    const List* found = pointer<const List>();
    return found == nullptr || found->taken != nullptr ? nullptr : found;
  }
  [[nodiscard]] const List* generator() const {
    const List* found = pointer<const List>();
    return found == nullptr || found->taken == nullptr ? nullptr : found;
  }
  [[nodiscard]] const Dict* dict() const { return pointer<const Dict>(); }
  [[nodiscard]] Namespace* members() const { return pointer<Namespace>(); }
  [[nodiscard]] const Callable* callable() const { return pointer<const Callable>(); }
  [[nodiscard]] const Object* object() const { return pointer<const Object>(); }
  // An integer, or a flag as 0 or 1.
  [[nodiscard]] std::optional<int64_t> whole() const;
  // Returns "'x'" of an undefined value.
  [[nodiscard]] std::string undefined_name() const;
  // Returns Python's name of the type: "str", "NoneType", "dict".
  [[nodiscard]] const char* type_name() const;
  [[nodiscard]] bool truth() const;
  // Levels of values within this one: 1 for a list of numbers.
  [[nodiscard]] int nesting() const;

 private:
  template <class T>
  [[nodiscard]] static std::shared_ptr<const T> counted(T object) {
    return std::allocate_shared<const T>(CountedAllocator<T>(), std::move(object));
  }

  template <class T>
  [[nodiscard]] T* pointer() const {
    const auto* found = std::get_if<std::shared_ptr<T>>(&value_);
    return found == nullptr ? nullptr : found->get();
  }

  Variant value_;
};

// Arguments of a call or filter.
struct Arguments {
  Values positional;
  Counted<std::pair<std::string, Value>> named;
  CountedMemory names = {};

  void add(std::string name, Value value) {
    names.add(name.size());
    named.emplace_back(std::move(name), std::move(value));
  }
};

// Python's ==.
[[nodiscard]] bool equal(const Value& a, const Value& b);
// Returns the member of a dict with this key, or nullptr.
[[nodiscard]] const Value* find(const Dict& dict, const Value& key);
[[nodiscard]] const Value* find(const Dict& dict, std::string_view key);

// Python's str() and repr(). Text within keeps its source.
[[nodiscard]] TracedText to_text(const Value& value);
[[nodiscard]] TracedText to_repr(const Value& value);

struct JsonFormat {
  bool ensure_ascii = false;
  std::optional<std::string> indent = {};
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// json.dumps(). Text within keeps its source. Throws Error(kData) for a value that JSON lacks.
[[nodiscard]] TracedText to_json(const Value& value, const JsonFormat& format);

}  // namespace finetune::chat
