// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/added_tokens.h"

#include <algorithm>

#include "finetune/base/utf8.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/char_properties.h"

namespace finetune::tokenizer {
namespace {

// Returns the offset of the last character of `text`. Requires: not empty.
size_t last_char(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t start = last_char(text);
  return has_property(utf8::decode(text, start), kWordChar);
}

bool starts_with_word(std::string_view text) {
  size_t offset = 0;
  return !text.empty() && has_property(utf8::decode(text, offset), kWordChar);
}

size_t start_of_last_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t start = last_char(text.substr(0, end));
    size_t offset = start;
    if (char_class(utf8::decode(text, offset)) != CharClass::kSpace) break;
    end = start;
  }
  return end;
}

size_t length_of_first_space(std::string_view text) {
  size_t end = 0;
  for (size_t offset = 0; offset < text.size(); end = offset) {
    if (char_class(utf8::decode(text, offset)) != CharClass::kSpace) break;
  }
  return end;
}

}  // namespace

void LiteralMatcher::add(std::string_view literal) {
  uint32_t node = 0;
  for (const char c : literal) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[node].literal = static_cast<int32_t>(count_++);
  starts_.add(static_cast<uint8_t>(literal.front()));
}

uint32_t LiteralMatcher::child(uint32_t node, uint8_t byte) const {
  for (const auto& [key, next] : nodes_[node].children) {
    if (key == byte) return next;
  }
  return 0;
}

std::optional<LiteralMatcher::Match> LiteralMatcher::find(std::string_view text,
                                                          size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t start = starts_.find(text, from); start < text.size();
       start = starts_.find(text, start + 1)) {
    uint32_t node = 0;
    std::optional<Match> longest;
    for (size_t i = start; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) break;
      if (nodes_[node].literal >= 0) {
        longest = Match{start, i + 1, static_cast<size_t>(nodes_[node].literal)};
      }
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokens::add(const AddedToken& token,
                      const std::function<std::string(std::string_view)>& normalize) {
  const size_t index = tokens_.size();
  tokens_.push_back(token);
  by_content_[token.content] = index;
  by_id_[token.id] = index;
  Set& set = token.normalized ? normalized_ : raw_;
  std::string literal = token.normalized ? normalize(token.content) : token.content;
  literals_.push_back(literal);
  if (token.special) special_.insert(token.content);
  if (literal.empty()) return;
  set.matcher.add(literal);
  set.tokens.push_back(index);
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

const std::string* AddedTokens::decoded(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &literals_[found->second];
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

std::vector<AddedTokens::Part> AddedTokens::split_raw(std::string_view text,
                                                      std::span<const TextRange> literal) const {
  return split(text, raw_, literal);
}

std::vector<AddedTokens::Part> AddedTokens::split_normalized(std::string_view text) const {
  return split(text, normalized_, {});
}

namespace {

bool touches(std::span<const TextRange> ranges, size_t begin, size_t end) {
  const auto found =
      std::ranges::upper_bound(ranges, static_cast<int64_t>(begin), {}, &TextRange::end);
  return found != ranges.end() && found->begin < static_cast<int64_t>(end);
}

}  // namespace

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, const Set& set,
                                                  std::span<const TextRange> literal) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t from = 0; const auto match = set.matcher.find(text, from);) {
    from = match->end;
    const AddedToken& token = tokens_[set.tokens[match->literal]];
    size_t start = match->start;
    size_t end = match->end;
    if (token.special && touches(literal, start, end)) {
      from = start + 1;  // a shorter token may begin within it
      continue;
    }
    if (token.single_word &&
        (ends_with_word(text.substr(0, start)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) start = std::max(start_of_last_space(text.substr(0, start)), done);
    if (token.rstrip) end += length_of_first_space(text.substr(end));
    if (done < start) parts.push_back({-1, text.substr(done, start - done)});
    parts.push_back({token.id, text.substr(start, end - start)});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, text.substr(done)});
  return parts;
}

}  // namespace finetune::tokenizer
