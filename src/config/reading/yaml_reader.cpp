// SPDX-License-Identifier: MIT
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "config/reading/node.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

std::string position(const std::string& name, int line) { return format_text("{}:{}", name, line); }

// Builds nodes from yaml-cpp's events instead of YAML::Load: excessive depth, anchors, tags and
// duplicate keys are rejected at the event, before anything is allocated.
class NodeBuilder : public YAML::EventHandler {
 public:
  NodeBuilder(std::string name, std::string_view text) : name_(std::move(name)), text_(text) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      fail(mark, "a second document, or text that does not line up with the keys, begins here");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    put(mark, Node{});
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases (*name) are not read; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    const bool plain = tag != "!";
    if (!plain) require_closed_quotes(mark);
    put(mark, {.kind = plain ? Node::Kind::kPlain : Node::Kind::kQuoted, .text = value});
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

  [[nodiscard]] const Node& root() const { return root_; }
  [[nodiscard]] const std::vector<int>& root_lines() const { return root_lines_; }

 private:
  struct Level {
    Node node;
    int line = 0;
    bool key_is_next = false;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    throw Error(ErrorKind::kConfig, position(name_, mark.line + 1) + ": " + message);
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) fail(mark, "anchors (&name) are not read; write the value out");
  }

  [[noreturn]] void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    fail(mark, "tags (" + tag + ") are not read; write a plain value");
  }

  // Reports unclosed quotes, because yaml-cpp would read everything up to the end of the file as
  // text.
  void require_closed_quotes(const YAML::Mark& mark) const {
    const auto start = static_cast<size_t>(mark.pos);
    if (start >= text_.size()) return;
    const char quote = text_[start];
    if (quote != '"' && quote != '\'') return;  // a block ends by its indentation
    for (size_t i = start + 1; i < text_.size() && text_[i] != '\n'; ++i) {
      const bool escaped = quote == '"' ? text_[i] == '\\' : text_.substr(i).starts_with("''");
      if (escaped) {
        ++i;
      } else if (text_[i] == quote) {
        return;
      }
    }
    fail(mark, std::string("text that begins with ") + quote + " must end with it on its line");
  }

  void count_value(const YAML::Mark& mark) {
    if (++values_ > 2 * kMaxConfigValues) fail(mark, "holds too many values for a configuration");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    count_value(mark);
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    if (levels_.size() >= static_cast<size_t>(kMaxConfigDepth)) {
      fail(mark, format_text("nested deeper than {} levels", kMaxConfigDepth));
    }
    if (!levels_.empty() && levels_.back().key_is_next) {
      fail(mark, "a key must be a name, not a list or mapping");
    }
    levels_.push_back({{.kind = kind}, mark.line + 1, kind == Node::Kind::kMap});
  }

  void close() {
    Node node = std::move(levels_.back().node);
    levels_.pop_back();
    store(std::move(node));
  }

  void put(const YAML::Mark& mark, Node node) {
    count_value(mark);
    if (levels_.empty() || !levels_.back().key_is_next) {
      store(std::move(node));
      return;
    }
    if (!node.is_scalar()) fail(mark, "a key is missing before ':'");
    if (node.kind == Node::Kind::kPlain && node.text == "<<") {
      fail(mark, "merge keys (<<) are not read; write the values out");
    }
    Level& level = levels_.back();
    if (std::find(level.node.names.begin(), level.node.names.end(), node.text) !=
        level.node.names.end()) {
      fail(mark, "the key '" + node.text + "' is there twice");
    }
    if (levels_.size() == 1) root_lines_.push_back(mark.line + 1);
    level.node.names.push_back(std::move(node.text));
    level.key_is_next = false;
  }

  void store(Node node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    level.node.items.push_back(std::move(node));
    level.key_is_next = level.node.kind == Node::Kind::kMap;
  }

  std::string name_;
  std::string_view text_;
  int documents_ = 0;
  Node root_;
  std::vector<int> root_lines_;
  std::vector<Level> levels_;
  size_t values_ = 0;  // including keys
};

NodeBuilder parse(std::string_view text, const std::string& name) {
  NodeBuilder builder(name, text);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    // what() would begin with line and column in yaml-cpp's format.
    const std::string where = error.mark.is_null() ? name : position(name, error.mark.line + 1);
    throw Error(ErrorKind::kConfig, where + ": is not valid YAML: " + error.msg);
  }
  return builder;
}

}  // namespace

std::vector<Setting> read_yaml(std::string_view text, const std::string& name) {
  const NodeBuilder builder = parse(text, name);
  const Node& root = builder.root();
  if (root.kind == Node::Kind::kNull) return {};
  if (root.kind != Node::Kind::kMap) {
    throw Error(ErrorKind::kConfig,
                name + ": must hold keys and values (\"key: value\", with a space)");
  }
  std::vector<Setting> settings;
  for (size_t i = 0; i < root.items.size(); ++i) {
    settings.push_back({root.names[i], position(name, builder.root_lines()[i]), root.items[i]});
  }
  return settings;
}

}  // namespace finetune
