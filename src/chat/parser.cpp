// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <unordered_map>

#include "chat/filters.h"
#include "chat/syntax.h"
#include "finetune/base/error.h"

namespace finetune::chat {
namespace {

using Kind = Node::Kind;

// Deeper expressions and blocks than this are refused: recursion has to end.
constexpr int kMaxDepth = 150;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

  Syntax run() {
    syntax_.body = parse_body({});
    return std::move(syntax_);
  }

 private:
  // Counts the nesting of the construct that is being parsed.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.fail("the template is nested too deeply");
    }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  [[nodiscard]] const Token& token(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  [[noreturn]] void fail(const std::string& problem) const { fail_at(where_, token().at, problem); }
  [[nodiscard]] static std::string described(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kBlockEnd:
        return "'%}'";
      case Token::Kind::kVariableEnd:
        return "'}}'";
      case Token::Kind::kEnd:
        return "the end of the template";
      default:
        return "'" + token.text + "'";
    }
  }
  [[nodiscard]] bool is(std::string_view name, size_t ahead = 0) const {
    return token(ahead).kind == Token::Kind::kOperator && token(ahead).text == name;
  }
  [[nodiscard]] bool is_word(std::string_view name, size_t ahead = 0) const {
    return token(ahead).kind == Token::Kind::kName && token(ahead).text == name;
  }
  bool skip(std::string_view name) { return is(name) && ++at_ > 0; }
  bool skip_word(std::string_view name) { return is_word(name) && ++at_ > 0; }
  void expect(std::string_view name) {
    if (!skip(name)) fail("expected '" + std::string(name) + "', not " + described(token()));
  }
  void expect(Token::Kind kind, std::string_view text) {
    if (token().kind != kind) {
      fail("expected '" + std::string(text) + "', not " + described(token()));
    }
    ++at_;
  }
  std::string expect_name() {
    if (token().kind != Token::Kind::kName) fail("expected a name, not " + described(token()));
    return tokens_[at_++].text;
  }

  [[nodiscard]] NodePointer make(Kind kind, Position at) const {
    return std::make_unique<Node>(Node{.kind = kind, .at = at});
  }
  template <class... Children>
  [[nodiscard]] NodePointer make(Kind kind, Position at, Children... children) const {
    NodePointer node = make(kind, at);
    (node->children.push_back(std::move(children)), ...);
    return node;
  }
  int32_t symbol(const std::string& name) {
    const auto [found, is_new] =
        numbers_.emplace(name, static_cast<int32_t>(syntax_.symbols.size()));
    if (is_new) syntax_.symbols.push_back(name);
    return found->second;
  }
  NodePointer make_name(const std::string& name, Position at) {
    NodePointer node = make(Kind::kName, at);
    node->name = name;
    node->symbol = symbol(name);
    return node;
  }
  NodePointer make_constant(Value value, Position at) {
    NodePointer node = make(Kind::kConstant, at);
    node->value = std::move(value);
    return node;
  }

  // --- Expressions, in the order of jinja2's grammar -------------------------------------------

  NodePointer expression() {
    const Nested nested(*this);
    Position at = token().at;
    NodePointer value = disjunction();
    while (skip_word("if")) {
      NodePointer condition = disjunction();
      NodePointer other = skip_word("else") ? expression() : nullptr;
      value = make(Kind::kCondition, at, std::move(condition), std::move(value), std::move(other));
      at = token().at;
    }
    return value;
  }

  // Parses operands that `next` reads, separated by a word.
  template <class Next>
  NodePointer joined(Kind kind, std::string_view word, const Next& next) {
    const Position at = token().at;
    NodePointer first = next();
    if (!is_word(word)) return first;
    NodePointer node = make(kind, at, std::move(first));
    while (skip_word(word)) node->children.push_back(next());
    return node;
  }
  NodePointer disjunction() {
    return joined(Kind::kOr, "or", [&] { return conjunction(); });
  }
  NodePointer conjunction() {
    return joined(Kind::kAnd, "and", [&] { return negation(); });
  }
  NodePointer negation() {
    const Nested nested(*this);
    const Position at = token().at;
    if (!is_word("not")) return comparison();
    ++at_;
    return make(Kind::kNot, at, negation());
  }

  NodePointer comparison() {
    const Position at = token().at;
    NodePointer first = sum();
    NodePointer node = make(Kind::kCompare, at, std::move(first));
    while (true) {
      std::string name;
      static constexpr std::array<std::string_view, 6> kNames = {"==", "!=", "<", "<=", ">", ">="};
      if (token().kind == Token::Kind::kOperator &&
          std::ranges::find(kNames, token().text) != kNames.end()) {
        name = tokens_[at_++].text;
      } else if (skip_word("in")) {
        name = "in";
      } else if (is_word("not") && is_word("in", 1)) {
        at_ += 2;
        name = "not in";
      } else {
        break;
      }
      node->operators.push_back(name);
      node->children.push_back(sum());
    }
    return node->operators.empty() ? std::move(node->children.front()) : std::move(node);
  }

  template <class Next>
  NodePointer arithmetic(std::initializer_list<std::string_view> names, const Next& next) {
    const Position at = token().at;
    NodePointer left = next();
    const int depth = depth_;
    while (token().kind == Token::Kind::kOperator &&
           std::ranges::find(names, token().text) != names.end()) {
      if (++depth_ > kMaxDepth * 4) fail("the expression is too long");
      std::string name = tokens_[at_++].text;
      NodePointer right = next();
      left = make(Kind::kArithmetic, at, std::move(left), std::move(right));
      left->name = std::move(name);
    }
    depth_ = depth;
    return left;
  }
  NodePointer sum() {
    return arithmetic({"+", "-"}, [&] { return concatenation(); });
  }
  NodePointer concatenation() {
    const Position at = token().at;
    NodePointer first = product();
    if (!is("~")) return first;
    NodePointer node = make(Kind::kConcat, at, std::move(first));
    while (skip("~")) node->children.push_back(product());
    return node;
  }
  NodePointer product() {
    return arithmetic({"*", "/", "//", "%"},
                      [&] { return arithmetic({"**"}, [&] { return unary(true); }); });
  }

  NodePointer unary(bool with_filters) {
    const Nested nested(*this);
    const Position at = token().at;
    NodePointer node;
    if (skip("-")) {
      node = make(Kind::kNegative, at, unary(false));
    } else if (skip("+")) {
      node = make(Kind::kPositive, at, unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filters ? filtered(std::move(node)) : std::move(node);
  }

  NodePointer primary() {
    const Token& first = token();
    const Position at = first.at;
    switch (first.kind) {
      case Token::Kind::kName:
        ++at_;
        if (first.text == "true" || first.text == "True") return make_constant(true, at);
        if (first.text == "false" || first.text == "False") return make_constant(false, at);
        if (first.text == "none" || first.text == "None") return make_constant(None{}, at);
        return make_name(first.text, at);
      case Token::Kind::kText: {
        std::string text;
        while (token().kind == Token::Kind::kText) text += tokens_[at_++].text;
        return make_constant(std::move(text), at);
      }
      case Token::Kind::kInteger:
        return integer();
      case Token::Kind::kNumber: {
        double number = 0;
        std::from_chars(first.text.data(), first.text.data() + first.text.size(), number);
        ++at_;
        return make_constant(number, at);
      }
      default:
        break;
    }
    if (skip("(")) {
      NodePointer node = tuple(true, true);
      expect(")");
      return node;
    }
    if (skip("[")) return list(at);
    if (skip("{")) return dict(at);
    fail("unexpected " + described(first));
  }

  NodePointer integer() {
    const Token& token = tokens_[at_];
    std::string_view digits = token.text;
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
      base = (digits[1] | 32) == 'x' ? 16 : (digits[1] | 32) == 'o' ? 8 : 2;
      digits.remove_prefix(2);
    }
    int64_t number = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      fail("'" + token.text + "' is no integer of 64 bits");
    }
    ++at_;
    return make_constant(number, token.at);
  }

  // Parses a tuple without parentheses, or one expression.
  NodePointer tuple(bool with_conditions, bool may_be_empty) {
    const Position at = token().at;
    const auto item = [&] { return with_conditions ? expression() : disjunction(); };
    const auto ends = [&] {
      return is(")") || token().kind == Token::Kind::kVariableEnd ||
             token().kind == Token::Kind::kBlockEnd || is_word("in");
    };
    if (may_be_empty && ends()) return make(Kind::kTuple, at);
    NodePointer first = item();
    if (!is(",")) return first;
    NodePointer node = make(Kind::kTuple, at, std::move(first));
    while (skip(",") && !ends()) node->children.push_back(item());
    return node;
  }

  NodePointer list(Position at) {
    NodePointer node = make(Kind::kList, at);
    while (!is("]")) {
      node->children.push_back(expression());
      if (!is("]")) expect(",");
    }
    expect("]");
    return node;
  }

  NodePointer dict(Position at) {
    NodePointer node = make(Kind::kDict, at);
    while (!is("}")) {
      node->children.push_back(expression());
      expect(":");
      node->children.push_back(expression());
      if (!is("}")) expect(",");
    }
    expect("}");
    return node;
  }

  // Counts postfixes, whose nodes nest to the left.
  void count_postfix(int& count) const {
    if (++count > kMaxDepth) fail("the expression is too long");
  }

  NodePointer postfix(NodePointer node) {
    for (int count = 0;; count_postfix(count)) {
      if (is(".") || is("[")) {
        node = subscript(std::move(node));
      } else if (is("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePointer filtered(NodePointer node) {
    for (int count = 0;; count_postfix(count)) {
      if (is("|")) {
        node = filter(std::move(node));
      } else if (is_word("is")) {
        node = test(std::move(node));
      } else if (is("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePointer subscript(NodePointer node) {
    const Position at = token().at;
    if (skip(".")) {
      if (token().kind == Token::Kind::kInteger)
        return make(Kind::kItem, at, std::move(node), integer());
      std::string name = expect_name();
      NodePointer result = make(Kind::kAttribute, at, std::move(node));
      result->value = Value(name);
      result->name = std::move(name);
      return result;
    }
    expect("[");
    NodePointer result;
    NodePointer first = is(":") ? nullptr : expression();
    if (is(":")) {
      const auto part = [&]() -> NodePointer {
        return skip(":") && !is(":") && !is("]") ? expression() : nullptr;
      };
      NodePointer second = part();
      NodePointer third = part();
      result = make(Kind::kSlice, at, std::move(node), std::move(first), std::move(second),
                    std::move(third));
    } else {
      result = make(Kind::kItem, at, std::move(node), std::move(first));
    }
    expect("]");
    return result;
  }

  std::vector<ArgumentNode> arguments() {
    std::vector<ArgumentNode> list;
    expect("(");
    while (!is(")")) {
      ArgumentNode argument;
      if (skip("*")) {
        argument.kind = ArgumentNode::Kind::kSpreadList;
      } else if (skip("**")) {
        argument.kind = ArgumentNode::Kind::kSpreadDict;
      } else if (token().kind == Token::Kind::kName && is("=", 1)) {
        argument.kind = ArgumentNode::Kind::kNamed;
        argument.name = expect_name();
        ++at_;
      } else if (!list.empty() && list.back().kind != ArgumentNode::Kind::kPositional) {
        fail("a positional argument follows a named one");
      }
      argument.value = expression();
      list.push_back(std::move(argument));
      if (!is(")")) expect(",");
    }
    expect(")");
    return list;
  }

  NodePointer call(NodePointer node) {
    NodePointer result = make(Kind::kCall, token().at, std::move(node));
    result->arguments = arguments();
    return result;
  }

  NodePointer filter(NodePointer node) {
    expect("|");
    return named_filter(std::move(node));
  }
  NodePointer named_filter(NodePointer node) {
    NodePointer result = make(Kind::kFilter, token().at, std::move(node));
    result->name = expect_name();
    if (is("(")) result->arguments = arguments();
    result->filter = find_filter(result->name);
    return result;
  }

  NodePointer test(NodePointer node) {
    const Position at = token().at;
    ++at_;
    const bool negated = skip_word("not");
    NodePointer result = make(Kind::kTest, at, std::move(node));
    result->name = expect_name();
    const auto starts_operand = [&] {
      const Token::Kind kind = token().kind;
      if (kind == Token::Kind::kName) return !is_word("else") && !is_word("or") && !is_word("and");
      return kind == Token::Kind::kText || kind == Token::Kind::kInteger ||
             kind == Token::Kind::kNumber || is("[") || is("{");
    };
    if (is("(")) {
      result->arguments = arguments();
    } else if (starts_operand()) {
      if (is_word("is")) fail("tests with 'is' cannot be chained");
      ArgumentNode operand;
      operand.value = postfix(primary());
      result->arguments.push_back(std::move(operand));
    }
    result->test = find_test(result->name);
    return negated ? make(Kind::kNot, at, std::move(result)) : std::move(result);
  }

  // --- Statements ------------------------------------------------------------------------------

  // Parses until a tag whose name is one of `ends`, and moves past that name; nothing in `ends`:
  // until the end of the template.
  Nodes parse_body(std::initializer_list<std::string_view> ends, Position begin = {}) {
    const Nested nested(*this);
    Nodes body;
    while (true) {
      const Token& next = token();
      switch (next.kind) {
        case Token::Kind::kEnd:
          if (ends.size() > 0) {
            fail_at(where_, begin, "this block has no '" + std::string(*(ends.end() - 1)) + "'");
          }
          return body;
        case Token::Kind::kData: {
          NodePointer node = make(Kind::kData, next.at);
          node->value = Value(next.text);
          body.push_back(std::move(node));
          ++at_;
          break;
        }
        case Token::Kind::kVariableBegin: {
          ++at_;
          body.push_back(make(Kind::kOutput, next.at, tuple(true, false)));
          expect(Token::Kind::kVariableEnd, "}}");
          break;
        }
        default: {
          ++at_;  // {%
          const auto is_end = [&](std::string_view end) { return is_word(end); };
          if (std::ranges::any_of(ends, is_end)) {
            end_ = expect_name();
            return body;
          }
          if (NodePointer node = statement()) body.push_back(std::move(node));
          expect(Token::Kind::kBlockEnd, "%}");
          break;
        }
      }
    }
  }
  // Parses "%} body {% end".
  Nodes parse_block(std::initializer_list<std::string_view> ends) {
    const Position begin = token().at;
    expect(Token::Kind::kBlockEnd, "%}");
    return parse_body(ends, begin);
  }

  NodePointer statement() {
    const Position at = token().at;
    const std::string name = expect_name();
    if (name == "if") return if_statement(at);
    if (name == "for") return for_statement(at);
    if (name == "set") return set_statement(at);
    if (name == "macro") return macro_statement(at);
    if (name == "with") return with_statement(at);
    if (name == "call") return call_statement(at);
    if (name == "filter") {
      NodePointer node = make(Kind::kFilterBlock, at, filters_of_block(at));
      node->body = parse_block({"endfilter"});
      return node;
    }
    if (name == "generation") {
      syntax_.has_generation = true;
      NodePointer node = make(Kind::kGeneration, at);
      node->body = parse_block({"endgeneration"});
      return node;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(where_, at, "'" + name + "' outside of a loop");
      return make(name == "break" ? Kind::kBreak : Kind::kContinue, at);
    }
    static constexpr std::array<std::string_view, 9> kUnsupported = {
        "include", "import", "from", "extends", "block", "do", "autoescape", "trans", "debug"};
    if (std::ranges::find(kUnsupported, name) != kUnsupported.end()) {
      fail_at(where_, at, "'" + name + "' is not available in chat templates");
    }
    fail_at(where_, at, "unknown tag '" + name + "'");
  }

  NodePointer filters_of_block(Position at) {
    NodePointer chain = named_filter(make(Kind::kBlock, at));
    while (is("|")) chain = filter(std::move(chain));
    return chain;
  }

  NodePointer if_statement(Position at) {
    NodePointer node = make(Kind::kIf, at, tuple(false, false));
    node->body = parse_block({"elif", "else", "endif"});
    if (end_ == "elif") {
      const Nested nested(*this);
      node->other.push_back(if_statement(token().at));
    } else if (end_ == "else") {
      node->other = parse_block({"endif"});
    }
    return node;
  }

  NodePointer for_statement(Position at) {
    NodePointer target = assign_target(true);
    if (!skip_word("in")) fail("expected 'in', not " + described(token()));
    NodePointer items = tuple(false, false);
    NodePointer condition = skip_word("if") ? expression() : nullptr;
    const bool is_recursive = skip_word("recursive");
    NodePointer node =
        make(Kind::kFor, at, std::move(target), std::move(items), std::move(condition));
    if (is_recursive) node->name = "recursive";
    ++loops_;
    node->body = parse_block({"else", "endfor"});
    --loops_;
    if (end_ == "else") node->other = parse_block({"endfor"});
    return node;
  }

  // Parses a name, a tuple of names, or (outside of loops) a member of a namespace.
  NodePointer assign_target(bool is_loop) {
    const Position at = token().at;
    NodePointer node = make(Kind::kTuple, at);
    const bool has_parenthesis = skip("(");
    do {
      if (is("=") || is_word("in") || is(")")) break;
      const Position start = token().at;
      NodePointer name = make_name(expect_name(), start);
      if (!is_loop && is(".")) name = subscript(std::move(name));
      node->children.push_back(std::move(name));
      if (!is(",") && node->children.size() == 1) {
        if (has_parenthesis) expect(")");
        return std::move(node->children.front());
      }
    } while (skip(","));
    if (has_parenthesis) expect(")");
    return node;
  }

  NodePointer set_statement(Position at) {
    NodePointer target = assign_target(false);
    if (skip("=")) return make(Kind::kSet, at, std::move(target), tuple(true, false));
    NodePointer chain = make(Kind::kBlock, at);
    while (is("|")) chain = filter(std::move(chain));
    NodePointer node = make(Kind::kSetBlock, at, std::move(target), std::move(chain));
    node->body = parse_block({"endset"});
    return node;
  }

  // Parses "(a, b=1)" into parameters and defaults.
  void signature(Node& node) {
    expect("(");
    while (!is(")")) {
      node.parameters.push_back(symbol(expect_name()));
      node.children.push_back(skip("=") ? expression() : nullptr);
      if (!is(")")) expect(",");
    }
    expect(")");
  }

  // Parses the body of a macro, in which 'break' needs a loop inside it.
  Nodes separate_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Nodes body = parse_block({end});
    loops_ = loops;
    return body;
  }

  NodePointer macro_statement(Position at) {
    NodePointer node = make(Kind::kMacro, at);
    node->name = expect_name();
    node->symbol = symbol(node->name);
    symbol("caller");
    signature(*node);
    node->body = separate_block("endmacro");
    return node;
  }

  NodePointer call_statement(Position at) {
    NodePointer macro = make(Kind::kMacro, at);
    macro->name = "caller";
    macro->symbol = symbol("caller");
    if (is("(")) signature(*macro);
    NodePointer target = unary(false);
    if (target->kind != Kind::kCall) fail_at(where_, at, "'call' needs the call of a macro");
    macro->body = separate_block("endcall");
    NodePointer node = make(Kind::kCallBlock, at, std::move(target));
    node->other.push_back(std::move(macro));
    return node;
  }

  NodePointer with_statement(Position at) {
    NodePointer node = make(Kind::kWith, at);
    while (token().kind != Token::Kind::kBlockEnd) {
      if (!node->children.empty()) expect(",");
      node->children.push_back(assign_target(true));
      expect("=");
      node->children.push_back(expression());
    }
    node->body = parse_block({"endwith"});
    return node;
  }

  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  std::string end_;  // name of the tag that ended the last body
  Syntax syntax_;
  std::unordered_map<std::string, int32_t> numbers_;  // of the symbols
};

}  // namespace

Syntax parse(std::string_view text, const std::string& where) {
  return Parser(tokenize(text, where), where).run();
}

}  // namespace finetune::chat
