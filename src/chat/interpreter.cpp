// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <type_traits>

#include "chat/arguments.h"
#include "chat/filters.h"
#include "chat/syntax.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/chat/chat_template.h"

namespace finetune::chat {
namespace {

using Kind = Node::Kind;

// An Error whose message begins with a position.
class PositionedError : public Error {
 public:
  using Error::Error;
};

// Variables that statements of one block set; a loop makes one for each iteration.
struct Scope {
  std::shared_ptr<Scope> parent;
  Counted<std::pair<int32_t, Value>> values = {};

  void set(int32_t symbol, Value value) {
    Limits::work(values.size());
    for (auto& [name, old] : values) {
      if (name != symbol) continue;
      old = std::move(value);
      return;
    }
    values.emplace_back(symbol, std::move(value));
  }
};

enum class Flow { kNormal, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(const Syntax& syntax, const std::string& where, const Variables& variables)
      : syntax_(syntax), where_(where), variables_(variables), globals_(syntax.symbols.size()) {
    for (const auto& [name, value] : variables.values) {
      const auto found = std::ranges::find(syntax.symbols, name);
      if (found == syntax.symbols.end()) continue;
      globals_[static_cast<size_t>(found - syntax.symbols.begin())] = value;
    }
    for (size_t i = 0; i < globals_.size(); ++i) {
      if (!globals_[i].is_undefined()) continue;
      globals_[i] = builtin(syntax.symbols[i]);
      if (globals_[i].is_undefined()) globals_[i] = Value::undefined(syntax.symbols[i]);
    }
    loop_symbol_ = symbol_of("loop");
    caller_symbol_ = symbol_of("caller");
  }

  ~Interpreter() {
    // Macros refer to the scopes that hold them, and namespaces may hold themselves.
    for (const auto& scope : macro_scopes_) scope->values.clear();
    for (const auto& members : namespaces_) members->members.clear();
    for (const auto& loop : changing_loops_) loop->last_change.reset();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  TracedText run() {
    execute(syntax_.body);
    return std::move(output_);
  }

 private:
  // Makes a new scope current.
  class Inner {
   public:
    explicit Inner(Interpreter& interpreter) : Inner(interpreter, interpreter.scope_) {}
    Inner(Interpreter& interpreter, std::shared_ptr<Scope> parent)
        : interpreter_(interpreter), before_(interpreter.scope_) {
      interpreter.scope_ =
          std::allocate_shared<Scope>(CountedAllocator<Scope>(), Scope{std::move(parent)});
    }
    ~Inner() { interpreter_.scope_ = std::move(before_); }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> before_;
  };

  [[nodiscard]] int32_t symbol_of(std::string_view name) const {
    const auto found = std::ranges::find(syntax_.symbols, name);
    return found == syntax_.symbols.end() ? -1
                                          : static_cast<int32_t>(found - syntax_.symbols.begin());
  }

  // --- Statements ------------------------------------------------------------------------------

  Flow execute(const Nodes& body) {
    for (const NodePointer& node : body) {
      if (const Flow flow = execute(*node); flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow execute(const Node& node) {
    return within(node, [&] { return execute_node(node); });
  }

  // Counts a step and the depth, and adds the node's position to what `run` throws.
  template <class Run>
  std::invoke_result_t<Run> within(const Node& node, const Run& run) {
    try {
      const Limits::Deeper deeper;
      Limits::step();
      return run();
    } catch (const PositionedError&) {
      throw;
    } catch (const Error& error) {
      throw PositionedError(ErrorKind::kData,
                            format_text("{}:{}:{}: {}", where_, node.at.line, node.at.column,
                                        shortened(error.what(), Limits::kMaxMessage)));
    }
  }

  Flow execute_node(const Node& node) {
    switch (node.kind) {
      case Kind::kData:
        output_.append(node.value.text()->str());
        break;
      case Kind::kOutput:
        output_.append(to_text(evaluate(*node.children[0])));
        break;
      case Kind::kIf:
        return execute(evaluate(*node.children[0]).truth() ? node.body : node.other);
      case Kind::kFor:
        return execute_loop(node);
      case Kind::kSet:
        assign(*node.children[0], evaluate(*node.children[1]));
        break;
      case Kind::kSetBlock:
        block_ = captured(node.body);
        assign(*node.children[0], evaluate(*node.children[1]));
        break;
      case Kind::kFilterBlock:
        block_ = captured(node.body);
        output_.append(to_text(evaluate(*node.children[0])));
        break;
      case Kind::kGeneration: {
        TracedText text = captured(node.body);
        text.mark_generated();
        output_.append(text);
        break;
      }
      case Kind::kMacro:
        scope_->set(node.symbol, macro(node));
        break;
      case Kind::kCallBlock:
        output_.append(to_text(call(*node.children[0], macro(*node.other[0]))));
        break;
      case Kind::kWith:
        execute_with(node);
        break;
      case Kind::kBreak:
        return Flow::kBreak;
      case Kind::kContinue:
        return Flow::kContinue;
      default:
        fail("an expression where a statement is expected");
    }
    return Flow::kNormal;
  }

  // Returns what the body writes; what it sets stays within.
  TracedText captured(const Nodes& body) {
    const Inner inner(*this);
    TracedText before = std::exchange(output_, {});
    execute(body);
    return std::exchange(output_, std::move(before));
  }

  void execute_with(const Node& node) {
    Values values;
    for (size_t i = 1; i < node.children.size(); i += 2) {
      values.push_back(evaluate(*node.children[i]));
    }
    const Inner inner(*this);
    for (size_t i = 0; i < values.size(); ++i) assign(*node.children[2 * i], values[i]);
    if (execute(node.body) != Flow::kNormal) fail("'break' leaves 'with'");
  }

  void assign(const Node& target, Value value) {
    if (target.kind == Kind::kName) return scope_->set(target.symbol, std::move(value));
    if (target.kind == Kind::kAttribute) {
      const Value object = evaluate(*target.children[0]);
      Namespace* members = object.members();
      if (members == nullptr) fail("cannot assign attribute on non-namespace object");
      return set_member(*members, target.name, std::move(value));
    }
    if (target.kind != Kind::kTuple) fail("this cannot be assigned to");
    const Values items = items_of(value);
    if (items.size() != target.children.size()) {
      fail(format_text("cannot unpack {} values into {} names", items.size(),
                       target.children.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i]);
  }

  static void set_member(Namespace& members, const std::string& name, Value value) {
    if (name.starts_with('_')) fail("a namespace has no member '" + name + "'");
    Limits::work(4 * members.members.size());
    for (auto& [other, old] : members.members) {
      if (other != name) continue;
      old = std::move(value);
      return;
    }
    members.names.add(name.size());
    members.members.emplace_back(name, std::move(value));
  }

  struct Loop {
    Values items;
    size_t index = 0;
    std::optional<Value> last_change = {};
    int nesting = 0;    // of the items
    int64_t depth = 0;  // of recursion
  };

  std::optional<Value> loop_member(const std::shared_ptr<Loop>& loop, std::string_view name) {
    const auto index = static_cast<int64_t>(loop->index);
    const int64_t size = std::ssize(loop->items);
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "revindex") return size - index;
    if (name == "revindex0") return size - index - 1;
    if (name == "first") return index == 0;
    if (name == "last") return index == size - 1;
    if (name == "length") return size;
    if (name == "depth") return loop->depth + 1;
    if (name == "depth0") return loop->depth;
    if (name == "previtem") {
      return index > 0 ? loop->items[loop->index - 1]
                       : Value::undefined("there is no previous item");
    }
    if (name == "nextitem") {
      return index + 1 < size ? loop->items[loop->index + 1]
                              : Value::undefined("there is no next item");
    }
    if (name == "cycle") {
      return Callable{.name = "cycle",
                      .call = [loop](const Arguments& arguments) -> Value {
                        if (arguments.positional.empty()) fail("no items for cycling given");
                        return arguments.positional[loop->index % arguments.positional.size()];
                      },
                      .nesting = loop->nesting};
    }
    if (name == "changed") {
      return Callable{.name = "changed",
                      .call = [this, loop](const Arguments& arguments) -> Value {
                        Value now = List{.items = arguments.positional, .is_tuple = true};
                        const bool changed = !loop->last_change || !equal(*loop->last_change, now);
                        if (!loop->last_change) changing_loops_.push_back(loop);
                        loop->last_change = std::move(now);
                        return changed;
                      },
                      .nesting = loop->nesting};
    }
    return std::nullopt;
  }

  Flow execute_loop(const Node& node) { return execute_loop(node, evaluate(*node.children[1]), 0); }

  // `depth`: of loop(items) within a recursive loop.
  Flow execute_loop(const Node& node, const Value& items, int64_t depth) {
    auto loop = std::allocate_shared<Loop>(CountedAllocator<Loop>());
    loop->items = items_of(items);
    loop->depth = depth;
    if (node.children[2] != nullptr) {
      const auto is_left_out = [&](const Value& item) {
        const Inner inner(*this);
        assign(*node.children[0], item);
        return !evaluate(*node.children[2]).truth();
      };
      std::erase_if(loop->items, is_left_out);
    }
    if (loop->items.empty()) {
      const Inner inner(*this);
      return execute(node.other);
    }
    const bool uses_loop = loop_symbol_ >= 0;
    Value object;
    if (uses_loop) {
      for (const Value& item : loop->items) loop->nesting = std::max(loop->nesting, item.nesting());
      object =
          Object{.name = "LoopContext",
                 .member = [this, loop](std::string_view name) { return loop_member(loop, name); },
                 .call = recursion(node, depth),
                 .nesting = loop->nesting};
    }
    for (; loop->index < loop->items.size(); ++loop->index) {
      Limits::step();
      const Inner inner(*this);
      if (uses_loop) scope_->set(loop_symbol_, object);
      assign(*node.children[0], loop->items[loop->index]);
      if (execute(node.body) == Flow::kBreak) break;
    }
    return Flow::kNormal;
  }

  // Returns what loop(items) does: the loop's text for other items, seeing what the loop sees.
  std::function<Value(const Arguments&)> recursion(const Node& node, int64_t depth) {
    if (node.name.empty()) {
      return [](const Arguments&) -> Value {
        fail("The loop must have the 'recursive' marker to be called recursively.");
      };
    }
    keep_scope();
    return [this, &node, scope = scope_, depth](const Arguments& given) -> Value {
      const Limits::Deeper deeper;
      const Value items = bind(given, {"iterable"}, 1)[0];
      const Inner inner(*this, scope);
      TracedText before = std::exchange(output_, {});
      execute_loop(node, items, depth + 1);
      return std::exchange(output_, std::move(before));
    };
  }

  // Scopes that functions refer to live until the end, so that chains are not destroyed
  // recursively.
  void keep_scope() {
    if (macro_scopes_.empty() || macro_scopes_.back() != scope_) macro_scopes_.push_back(scope_);
  }

  // --- Expressions -----------------------------------------------------------------------------

  Value evaluate(const Node& node) {
    return within(node, [&] { return evaluate_node(node); });
  }

  Value evaluate_node(const Node& node) {
    switch (node.kind) {
      case Kind::kConstant:
        return node.value;
      case Kind::kName:
        return variable(node);
      case Kind::kList:
      case Kind::kTuple: {
        List list{.items = {}, .is_tuple = node.kind == Kind::kTuple};
        for (const NodePointer& child : node.children) list.items.push_back(evaluate(*child));
        return list;
      }
      case Kind::kDict: {
        Dict dict;
        for (size_t i = 0; i < node.children.size(); i += 2) {
          add_item(dict, evaluate(*node.children[i]), evaluate(*node.children[i + 1]));
        }
        return dict;
      }
      case Kind::kAttribute:
        return attribute_of(evaluate(*node.children[0]), node.value);
      case Kind::kItem: {
        const Value container = evaluate(*node.children[0]);
        return item_of(container, evaluate(*node.children[1]));
      }
      case Kind::kSlice: {
        const Value container = evaluate(*node.children[0]);
        std::array<Value, 3> bounds;
        for (size_t i = 0; i < 3; ++i) {
          if (node.children[i + 1] != nullptr) bounds[i] = evaluate(*node.children[i + 1]);
        }
        return slice(container, bounds[0], bounds[1], bounds[2]);
      }
      case Kind::kCall:
        return call(node, {});
      case Kind::kFilter:
        return evaluate_filter(node);
      case Kind::kTest: {
        const Value value = evaluate(*node.children[0]);
        if (node.test == nullptr) fail("no test named '" + node.name + "'");
        return naming("test", node.name,
                      [&] { return Value(node.test->call(value, arguments(node))); });
      }
      case Kind::kBlock:
        return block_;
      case Kind::kNot:
        return !evaluate(*node.children[0]).truth();
      case Kind::kNegative:
        return negative(evaluate(*node.children[0]));
      case Kind::kPositive:
        return negative(negative(evaluate(*node.children[0])));
      default:
        return evaluate_operator(node);
    }
  }

  Value evaluate_filter(const Node& node) {
    const Value value = evaluate(*node.children[0]);
    if (node.filter == nullptr) fail("no filter named '" + node.name + "'");
    if (value.text() != nullptr && value.text()->is_markup() && !takes_markup(node.name)) {
      fail("the filter '" + node.name + "' of a text of |safe is not available");
    }
    return naming("filter", node.name, [&] { return node.filter->call(value, arguments(node)); });
  }

  Value evaluate_operator(const Node& node) {
    switch (node.kind) {
      case Kind::kArithmetic: {
        const Value left = evaluate(*node.children[0]);
        return arithmetic(node.name, left, evaluate(*node.children[1]));
      }
      case Kind::kConcat: {
        TracedText text;
        for (const NodePointer& child : node.children) {
          text.append(to_text(evaluate(*child)));
        }
        return text;
      }
      case Kind::kAnd:
      case Kind::kOr: {
        Value value;
        for (const NodePointer& child : node.children) {
          value = evaluate(*child);
          if (value.truth() == (node.kind == Kind::kOr)) break;
        }
        return value;
      }
      case Kind::kCompare: {
        Value left = evaluate(*node.children[0]);
        for (size_t i = 0; i < node.operators.size(); ++i) {
          Value right = evaluate(*node.children[i + 1]);
          if (!compare(node.operators[i], left, right)) return false;
          left = std::move(right);
        }
        return true;
      }
      case Kind::kCondition: {
        if (evaluate(*node.children[0]).truth()) return evaluate(*node.children[1]);
        if (node.children[2] != nullptr) return evaluate(*node.children[2]);
        return Value::undefined("the inline if-expression");
      }
      default:
        fail("a statement where an expression is expected");
    }
  }

  // Adds the name of the filter or function to what it throws.
  template <class Call>
  Value naming(const char* kind, const std::string& name, const Call& run) const {
    try {
      return run();
    } catch (const PositionedError&) {
      throw;
    } catch (const Error& error) {
      fail(format_text("{} '{}': {}", kind, name, error.what()));
    }
  }

  static void add_item(Dict& dict, Value key, Value value) {
    for (auto& [other, old] : dict.items) {
      if (!equal(other, key)) continue;
      old = std::move(value);
      return;
    }
    dict.items.emplace_back(std::move(key), std::move(value));
  }

  Value variable(const Node& node) {
    for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
      Limits::work(scope->values.size());
      for (const auto& [symbol, value] : scope->values) {
        if (symbol == node.symbol) return value;
      }
    }
    return globals_[static_cast<size_t>(node.symbol)];
  }

  Arguments arguments(const Node& node) {
    Arguments result;
    for (const ArgumentNode& argument : node.arguments) {
      Value value = evaluate(*argument.value);
      switch (argument.kind) {
        case ArgumentNode::Kind::kPositional:
          result.positional.push_back(std::move(value));
          break;
        case ArgumentNode::Kind::kNamed:
          result.add(argument.name, std::move(value));
          break;
        case ArgumentNode::Kind::kSpreadList:
          Limits::work(value.list() == nullptr ? 0 : 16 * value.list()->items.size());
          for (Value& item : items_of(value)) result.positional.push_back(std::move(item));
          break;
        case ArgumentNode::Kind::kSpreadDict:
          if (value.dict() == nullptr) fail("argument after ** must be a mapping");
          for (const auto& [key, item] : value.dict()->items) {
            result.add(as_text(key).str(), item);
          }
          break;
      }
    }
    return result;
  }

  // `caller`: of a call block; undefined: none.
  Value call(const Node& node, const Value& caller) {
    const Value function = evaluate(*node.children[0]);
    if (function.is_undefined()) fail_undefined(function);
    if (const Object* object = function.object(); object != nullptr && object->call) {
      return naming("function", "loop", [&] { return object->call(arguments(node)); });
    }
    const Callable* callable = function.callable();
    if (callable == nullptr)
      fail(std::string("'") + function.type_name() + "' object is not callable");
    Arguments given = arguments(node);
    if (!caller.is_undefined()) given.add("caller", caller);
    if (callable->name == "raise_exception") return callable->call(given);
    return naming("function", callable->name, [&] { return callable->call(given); });
  }

  Value macro(const Node& node) {
    keep_scope();
    return Callable{.name = node.name,
                    .call = [this, &node, scope = scope_](const Arguments& given) {
                      return call_macro(node, scope, given);
                    }};
  }

  Value call_macro(const Node& node, const std::shared_ptr<Scope>& defined_in,
                   const Arguments& given) {
    const Limits::Deeper deeper;
    const Inner inner(*this, defined_in);
    if (given.positional.size() > node.parameters.size()) {
      fail(format_text("takes not more than {} arguments", node.parameters.size()));
    }
    std::vector<bool> is_set(node.parameters.size());
    for (size_t i = 0; i < given.positional.size(); ++i) {
      scope_->set(node.parameters[i], given.positional[i]);
      is_set[i] = true;
    }
    for (const auto& [name, value] : given.named) {
      if (name == "caller") {
        if (caller_symbol_ >= 0) scope_->set(caller_symbol_, value);
        continue;
      }
      Limits::work(8 * node.parameters.size());
      const auto found = std::ranges::find_if(node.parameters, [&, &name = name](int32_t symbol) {
        return syntax_.symbols[static_cast<size_t>(symbol)] == name;
      });
      if (found == node.parameters.end()) fail("takes no keyword argument '" + name + "'");
      const auto index = static_cast<size_t>(found - node.parameters.begin());
      if (is_set[index]) fail("got multiple values for argument '" + name + "'");
      scope_->set(*found, value);
      is_set[index] = true;
    }
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      if (is_set[i]) continue;
      const std::string& name = syntax_.symbols[static_cast<size_t>(node.parameters[i])];
      scope_->set(node.parameters[i], node.children[i] != nullptr ? evaluate(*node.children[i])
                                                                  : Value::undefined(name));
    }
    TracedText before = std::exchange(output_, {});
    execute(node.body);
    return std::exchange(output_, std::move(before));
  }

  // --- Functions -------------------------------------------------------------------------------

  Value builtin(const std::string& name) {
    if (name == "raise_exception") {
      return Callable{.name = name, .call = [](const Arguments& arguments) -> Value {
                        fail(to_text(bind(arguments, {"message"}, 1)[0]).str());
                      }};
    }
    if (name == "namespace" || name == "dict") {
      return Callable{.name = name, .call = [this, name](const Arguments& arguments) {
                        return make_dict(arguments, name == "namespace");
                      }};
    }
    if (name == "range") {
      return Callable{.name = name,
                      .call = [this](const Arguments& arguments) { return range(arguments); }};
    }
    if (name == "strftime_now") {
      return Callable{.name = name, .call = [this](const Arguments& arguments) -> Value {
                        return formatted_date(as_text(bind(arguments, {"format"}, 1)[0]).str());
                      }};
    }
    return {};
  }

  Value make_dict(const Arguments& arguments, bool is_namespace) {
    Dict dict;
    for (const Value& value : arguments.positional) {
      if (value.dict() != nullptr) {
        for (const auto& [key, item] : value.dict()->items) add_item(dict, key, item);
        continue;
      }
      for (const Value& pair : items_of(value)) {
        const Values items = items_of(pair);
        if (items.size() != 2) fail("needs pairs of a key and a value");
        add_item(dict, items[0], items[1]);
      }
    }
    for (const auto& [name, value] : arguments.named) add_item(dict, Value(name), value);
    if (!is_namespace) return dict;
    auto members = std::allocate_shared<Namespace>(CountedAllocator<Namespace>());
    namespaces_.push_back(members);
    for (const auto& [key, value] : dict.items) set_member(*members, as_text(key).str(), value);
    return members;
  }

  Value range(const Arguments& arguments) {
    const auto values = bind(arguments, {"start", "stop", "step"}, 1);
    const bool has_stop = !values[1].is_undefined();
    const int64_t start = has_stop ? as_integer(values[0]) : 0;
    const int64_t stop = as_integer(values[has_stop ? 1 : 0]);
    const int64_t step = values[2].is_undefined() ? 1 : as_integer(values[2]);
    if (step == 0) fail("the step must not be zero");
    List list;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
      // jinja2's sandbox has this limit.
      if (list.items.size() >= 100'000)
        fail("Range too big. The sandbox blocks ranges larger than 100000.");
      list.items.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return list;
  }

  std::string formatted_date(const std::string& format) const {
    if (format.empty()) return {};
    if (format.size() > 200) fail("the format is too long");
    std::array<char, 4096> buffer{};
    const size_t size =
        std::strftime(buffer.data(), buffer.size(), format.c_str(), &variables_.date);
    return {buffer.data(), size};
  }

  const Syntax& syntax_;
  const std::string& where_;
  const Variables& variables_;
  Values globals_;  // by symbol
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  int32_t loop_symbol_ = -1;  // -1: the template does not use it
  int32_t caller_symbol_ = -1;
  Counted<std::shared_ptr<Scope>> macro_scopes_;
  Counted<std::shared_ptr<Namespace>> namespaces_;
  Counted<std::shared_ptr<Loop>> changing_loops_;
  TracedText output_;
  Value block_;  // the text of the enclosing filter or set block
};

}  // namespace

ChatTemplate::ChatTemplate(std::string text, std::string where,
                           std::shared_ptr<const ChatTemplate> for_tools)
    : text_(std::move(text)),
      where_(std::move(where)),
      syntax_(std::make_unique<const Syntax>(parse(text_, where_))),
      for_tools_(std::move(for_tools)) {}

ChatTemplate::~ChatTemplate() = default;

TracedText ChatTemplate::render(const Variables& variables) const {
  const Limits::Rendering rendering;
  return Interpreter(*syntax_, where_, variables).run();
}

// A line break after a statement is dropped (trim_blocks), so each template begins a line, as it
// does alone. The empty expressions keep the white space at its end (lstrip_blocks); jinja2 drops
// one line break there.
std::string ChatTemplate::joined_text() const {
  if (!for_tools_) return text_;
  const auto body = [](std::string_view text) {
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    return "\n" + std::string(text) + "{{ '' }}";
  };
  return "{% if tools is not defined or tools is none %}" + body(text_) + "{% else %}" +
         body(for_tools_->text_) + "{% endif %}";
}

bool ChatTemplate::has_generation() const { return syntax_->has_generation; }

bool ChatTemplate::uses(std::string_view name) const {
  return std::ranges::find(syntax_->symbols, name) != syntax_->symbols.end();
}

}  // namespace finetune::chat
