// SPDX-License-Identifier: MIT
#include "tokenizer/byte_bpe.h"

#include <algorithm>

#include "finetune/base/utf8.h"
#include "tokenizer/byte_level.h"

namespace finetune::tokenizer {

ByteBpeTokenizer::ByteBpeTokenizer(ByteBpeParts parts) : parts_(std::move(parts)) {
  size_ = parts_.model->end_id();
  for (const AddedToken& token : parts_.added_tokens) {
    added_.add(token, parts_.normalizer);
    size_ = std::max<int64_t>(size_, int64_t{token.id} + 1);
  }
}

std::vector<int32_t> ByteBpeTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  for (const AddedTokens::Part& part : added_.split_raw(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else if (parts_.normalizer.empty()) {
      encode_normalized(part.text, ids);
    } else {
      encode_normalized(parts_.normalizer(part.text), ids);
    }
  }
  return ids;
}

void ByteBpeTokenizer::encode_normalized(std::string_view text, std::vector<int32_t>& ids) const {
  if (!added_.any_normalized()) {
    encode_plain(text, parts_.add_prefix_space, ids);
    return;
  }
  for (const AddedTokens::Part& part : added_.split_normalized(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_plain(part.text, parts_.add_prefix_space, ids);
    }
  }
}

void ByteBpeTokenizer::encode_plain(std::string_view text, bool add_prefix_space,
                                    std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::string with_space;
  if (add_prefix_space && text.front() != ' ') {
    with_space.append(" ").append(text);
    text = with_space;
  }
  if (!parts_.use_regex) {
    parts_.model->encode_word(text, ids);
    return;
  }
  Gpt2Splitter splitter(text);
  while (const auto word = splitter.next()) parts_.model->encode_word(*word, ids);
}

// Exact where nothing is normalised; else a part between added tokens counts as one range.
Tokens ByteBpeTokenizer::encode_with_ranges(std::string_view text) const {
  Tokens tokens;
  for (const AddedTokens::Part& part : added_.split_raw(text)) {
    auto at = static_cast<int64_t>(part.text.data() - text.data());
    const auto end = at + static_cast<int64_t>(part.text.size());
    const size_t before = tokens.ids.size();
    if (part.id >= 0) {
      tokens.ids.push_back(part.id);
    } else if (parts_.normalizer.empty()) {
      encode_normalized(part.text, tokens.ids);
    } else {
      encode_normalized(parts_.normalizer(part.text), tokens.ids);
    }
    for (size_t i = before; i < tokens.ids.size(); ++i) {
      if (part.id >= 0 || !parts_.normalizer.empty() || parts_.add_prefix_space) {
        tokens.ranges.push_back({at, end});
        continue;
      }
      std::string bytes;
      append_token_bytes(id_to_token(tokens.ids[i]), bytes);
      const auto size = static_cast<int64_t>(bytes.size());
      const int64_t trimmed = !bytes.empty() && bytes.front() == ' ' && size > 1 ? 1 : 0;
      tokens.ranges.push_back({at + trimmed, at + size});
      at += size;
    }
  }
  return tokens;
}

std::vector<int32_t> ByteBpeTokenizer::encode_word(std::string_view word) const {
  std::vector<int32_t> ids;
  encode_plain(word, true, ids);
  return ids;
}

ModelText ByteBpeTokenizer::combine(std::span<const int32_t> first,
                                    std::optional<std::span<const int32_t>> second) const {
  ModelText text = parts_.post_processor.combine(first, second);
  if (!parts_.token_types) std::fill(text.token_types.begin(), text.token_types.end(), uint8_t{0});
  return text;
}

int64_t ByteBpeTokenizer::num_special_tokens_to_add(bool pair) const {
  return parts_.post_processor.num_added(pair);
}

bool ByteBpeTokenizer::continues_word(int32_t id) const {
  if (is_special(id)) return false;
  const std::string token = id_to_token(id);
  return !token.empty() && !token.starts_with("\xC4\xA0");
}

std::string ByteBpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  bool first = true;
  for (const int32_t id : ids) {
    if (skip_special_tokens && is_special(id)) continue;
    const std::string token = id_to_token(id);
    if (parts_.byte_level_decoder) {
      if (!append_token_bytes(token, bytes)) bytes += token;
    } else if (!token.empty()) {
      if (!first) bytes += ' ';
      bytes += token;
      first = false;
    }
  }
  return utf8::replace_invalid(bytes);
}

std::optional<int32_t> ByteBpeTokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  return parts_.model->token_to_id(token);
}

std::string ByteBpeTokenizer::id_to_token(int32_t id) const {
  if (const AddedToken* added = added_.find(id)) return added->content;
  return parts_.model->id_to_token(id);
}

bool ByteBpeTokenizer::is_special(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special;
}

}  // namespace finetune::tokenizer
