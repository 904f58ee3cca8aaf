// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/lexer.h"
#include "finetune/chat/value.h"

namespace finetune::chat {

struct Filter;
struct Test;
struct Node;
using NodePointer = std::unique_ptr<Node>;
using Nodes = std::vector<NodePointer>;

// An argument of a call; "*x" and "**x" are spread.
struct ArgumentNode {
  enum class Kind { kPositional, kNamed, kSpreadList, kSpreadDict };
  Kind kind = Kind::kPositional;
  std::string name;
  NodePointer value;
};

// A node of the syntax tree: an expression or a statement.
struct Node {
  enum class Kind {
    // Expressions; `children` are the operands.
    kConstant,  // value
    kName,      // symbol
    kList,
    kTuple,
    kDict,       // key, value, key, value, ...
    kAttribute,  // child.name
    kItem,       // child[child]
    kSlice,      // child[child:child:child], absent ones null
    kCall,       // child(arguments)
    kFilter,     // child|name(arguments)
    kTest,       // child is name(arguments)
    kNot,
    kNegative,
    kPositive,
    kArithmetic,  // child name child
    kConcat,      // child ~ child ~ ...
    kAnd,
    kOr,
    kCompare,    // child operators[0] child operators[1] child ...
    kCondition,  // child[1] if child[0] else child[2]; the last may be null
    // Statements
    kData,    // value
    kOutput,  // {{ child }}
    kIf,      // children[0], body, other
    kFor,  // children: target, iterable, condition or null; body, other; name: "recursive" or empty
    kSet,  // children: target, value
    kSetBlock,     // children[0]: target; filters: arguments of kFilter nodes in `other`; body
    kMacro,        // symbol; children: defaults or null; parameters; body
    kGeneration,   // body
    kFilterBlock,  // children[0]: kFilter chain whose innermost operand is kBlock; body
    kBlock,        // the text of the enclosing filter block
    kWith,         // children: target, value, ...; body
    kCallBlock,    // children[0]: call; parameters and defaults as in kMacro in other[0]; body
    kBreak,
    kContinue,
  };
  Kind kind;
  Position at;
  std::string name = {};
  int32_t symbol = -1;
  Value value = {};
  Nodes children = {};
  std::vector<ArgumentNode> arguments = {};
  std::vector<std::string> operators = {};
  std::vector<int32_t> parameters = {};
  Nodes body = {};
  Nodes other = {};
  const Filter* filter = nullptr;  // null: unknown, an error if it is reached, as in jinja2
  const Test* test = nullptr;
};

struct Syntax {
  Nodes body;
  std::vector<std::string> symbols;  // names of variables by number
  bool has_generation = false;
};

// Throws Error(kData) with line and column, also for syntax that chat templates do not use.
[[nodiscard]] Syntax parse(std::string_view text, const std::string& where);

}  // namespace finetune::chat
