// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"
#include "tokenizer/unicode/start_bytes.h"

namespace finetune::tokenizer {

// A token that is searched in the text before the model processes it.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
  bool special = false;
};

// Finds literal strings: the leftmost match first, and of those that start there the longest.
class LiteralMatcher {
 public:
  struct Match {
    size_t start;
    size_t end;
    size_t literal;  // index in the order of add()
  };

  void add(std::string_view literal);  // Requires: not empty; of equal literals the last one wins
  [[nodiscard]] bool empty() const { return nodes_.size() == 1; }
  [[nodiscard]] std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    int32_t literal = -1;
    std::vector<std::pair<uint8_t, uint32_t>> children{};
  };

  [[nodiscard]] uint32_t child(uint32_t node, uint8_t byte) const;  // 0: none

  std::vector<Node> nodes_ = std::vector<Node>(1);
  StartBytes starts_;
  size_t count_ = 0;
};

// The added tokens of a tokenizer; splits text at them like the tokenizers package.
class AddedTokens {
 public:
  // A part of a text: an added token (id >= 0) or the text between added tokens (id -1).
  struct Part {
    int32_t id;
    std::string_view text;
  };

  // `normalize` is applied to the content of tokens that are searched in normalised text.
  void add(const AddedToken& token, const std::function<std::string(std::string_view)>& normalize);

  // Split at the tokens that are searched in the original or in normalised text.
  // No special token is found in the bytes of `literal`, which are ascending and disjoint.
  [[nodiscard]] std::vector<Part> split_raw(std::string_view text,
                                            std::span<const TextRange> literal = {}) const;
  [[nodiscard]] std::vector<Part> split_normalized(std::string_view text) const;
  [[nodiscard]] bool any_normalized() const { return !normalized_.matcher.empty(); }

  // Returns the token's text in decoding: its content as searched.
  [[nodiscard]] const std::string* decoded(int32_t id) const;
  // Whether a special token has this content.
  [[nodiscard]] bool is_special(const std::string& content) const {
    return special_.contains(content);
  }
  [[nodiscard]] const AddedToken* find(std::string_view content) const;
  [[nodiscard]] const AddedToken* find(int32_t id) const;
  [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  struct Set {
    LiteralMatcher matcher;
    std::vector<size_t> tokens;  // by literal
  };

  [[nodiscard]] std::vector<Part> split(std::string_view text, const Set& set,
                                        std::span<const TextRange> literal) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::vector<std::string> literals_;  // by index
  std::unordered_set<std::string> special_;
  Set raw_;
  Set normalized_;
};

}  // namespace finetune::tokenizer
