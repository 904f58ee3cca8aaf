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
    encode_plain(text, ids);
    return;
  }
  for (const AddedTokens::Part& part : added_.split_normalized(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_plain(part.text, ids);
    }
  }
}

void ByteBpeTokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::string with_space;
  if (parts_.add_prefix_space && text.front() != ' ') {
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

std::vector<int32_t> ByteBpeTokenizer::add_special_tokens(std::span<const int32_t> ids) const {
  std::vector<int32_t> result;
  result.reserve(parts_.prefix.size() + ids.size() + parts_.suffix.size());
  result.insert(result.end(), parts_.prefix.begin(), parts_.prefix.end());
  result.insert(result.end(), ids.begin(), ids.end());
  result.insert(result.end(), parts_.suffix.begin(), parts_.suffix.end());
  return result;
}

int64_t ByteBpeTokenizer::num_special_tokens_to_add() const {
  return static_cast<int64_t>(parts_.prefix.size() + parts_.suffix.size());
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
