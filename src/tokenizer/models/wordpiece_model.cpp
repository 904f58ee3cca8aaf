// SPDX-License-Identifier: MIT
#include "tokenizer/models/wordpiece_model.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

bool starts_char(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

// Returns id and size of the longest string that `text` starts with; size 0 if there is none.
std::pair<int32_t, size_t> longest(const CharTrie& strings, std::string_view text) {
  std::pair<int32_t, size_t> found{-1, 0};
  size_t at = 0;
  const CharTrie::Step* step = text.empty() ? nullptr : strings.first(utf8::decode(text, at));
  while (step != nullptr) {
    if (step->value >= 0) found = {step->value, at};
    step = at < text.size() ? strings.next(*step, utf8::decode(text, at)) : nullptr;
  }
  return found;
}

}  // namespace

WordPieceModel::WordPieceModel(WordPieceParts parts, const std::string& where)
    : prefix_(std::move(parts.continuing_subword_prefix)),
      max_chars_(static_cast<size_t>(std::max<int64_t>(parts.max_input_chars_per_word, 0))) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData, where + ": " + what);
  };
  int32_t end = 0;
  for (const auto& [token, id] : parts.vocabulary) {
    if (id < 0 || id >= kMaxVocabulary)
      fail(format_text("the token '{}' has the id {}", token, id));
    if (token.size() > kMaxTokenBytes) {
      fail(format_text("the token with the id {} is longer than {} bytes", id, kMaxTokenBytes));
    }
    end = std::max(end, id + 1);
  }
  tokens_.resize(static_cast<size_t>(end));
  std::vector<bool> used(tokens_.size());
  for (auto& [token, id] : parts.vocabulary) {
    const auto index = static_cast<size_t>(id);
    if (used[index]) {
      fail(format_text("the tokens '{}' and '{}' both have the id {}", tokens_[index], token, id));
    }
    used[index] = true;
    tokens_[index] = std::move(token);
  }
  std::vector<std::pair<std::string_view, int32_t>> continuing;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (!used[id]) continue;
    const std::string_view token = tokens_[id];
    if (!ids_.emplace(token, static_cast<int32_t>(id)).second) {
      fail("the token '" + tokens_[id] + "' is in the vocabulary twice");
    }
    if (token.starts_with(prefix_)) {
      continuing.emplace_back(token.substr(prefix_.size()), static_cast<int32_t>(id));
    }
  }
  continuing_ = CharTrie(continuing, where);
  const std::vector<std::pair<std::string_view, int32_t>> all(ids_.begin(), ids_.end());
  starting_ = CharTrie(all, where);
  const auto unk = token_to_id(parts.unk_token);
  if (!unk) fail("the unk_token '" + parts.unk_token + "' is not in the vocabulary");
  unk_id_ = *unk;
}

std::optional<int32_t> WordPieceModel::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string& WordPieceModel::id_to_token(int32_t id) const {
  static const std::string kNone;
  return id >= 0 && id < end_id() ? tokens_[static_cast<size_t>(id)] : kNone;
}

void WordPieceModel::segment(std::string_view word, std::vector<Piece>& pieces) const {
  const size_t before = pieces.size();
  const auto chars = static_cast<size_t>(std::count_if(word.begin(), word.end(), starts_char));
  size_t start = chars > max_chars_ ? std::string_view::npos : 0;
  while (start < word.size()) {
    const auto [id, size] = longest(start == 0 ? starting_ : continuing_, word.substr(start));
    if (size == 0) {
      start = std::string_view::npos;
      break;
    }
    pieces.push_back({id, static_cast<uint32_t>(start), static_cast<uint32_t>(start + size)});
    start += size;
  }
  if (start != std::string_view::npos) return;
  pieces.resize(before);
  pieces.push_back({unk_id_, 0, static_cast<uint32_t>(word.size())});
}

}  // namespace finetune::tokenizer
