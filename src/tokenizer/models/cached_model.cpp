// SPDX-License-Identifier: MIT
#include "tokenizer/models/cached_model.h"

#include <atomic>

#include "tokenizer/models/word_cache.h"

namespace finetune::tokenizer {
namespace {

std::atomic<uint64_t> next_serial{1};

// Separate caches for ids and pieces of words: callers rarely need both.
struct Scratch {
  WordCache<int32_t> ids;
  WordCache<Piece> pieces;
  std::vector<int32_t> new_ids;
  std::vector<Piece> new_pieces;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

// Appends the cached values of the word, or else the result of make() in `made`.
template <class Value, class Make>
void append(WordCache<Value>& cache, uint64_t owner, std::string_view word,
            std::vector<Value>& made, std::vector<Value>& result, const Make& make) {
  if (word.empty()) return;
  made.clear();
  if (word.size() > WordCache<Value>::kMaxWordBytes) {
    make();
  } else {
    cache.use_for(owner);
    const WordKey key(word);
    if (const auto known = cache.find(word, key)) {
      for (const Value& value : *known) result.push_back(value);
      return;
    }
    make();
    // Byte fallback can make more values than the word has bytes; such words are not cached.
    if (made.size() <= WordCache<Value>::kMaxValues) cache.insert(word, key, made);
  }
  result.insert(result.end(), made.begin(), made.end());
}

// Where the first part of a word ends: before a "▁" after another character.
size_t end_of_part(std::string_view word) {
  size_t before = 0;  // the end of the last "▁"
  for (size_t at; (at = word.find(kWordStart, before)) != std::string_view::npos;) {
    if (at > before) return at;
    before = at + kWordStart.size();
  }
  return word.size();
}

}  // namespace

CachedModel::CachedModel() : serial_(next_serial++) {}

void CachedModel::tokenize(std::string_view word, std::vector<Piece>& pieces) const {
  Scratch& scratch = thread_scratch();
  for (size_t begin = 0; begin < word.size();) {
    const std::string_view rest = word.substr(begin);
    const std::string_view part = has_parts_ ? rest.substr(0, end_of_part(rest)) : rest;
    const size_t first = pieces.size();
    append(scratch.pieces, serial_, part, scratch.new_pieces, pieces,
           [&] { segment(part, scratch.new_pieces); });
    for (size_t i = first; i < pieces.size() && begin > 0; ++i) {
      pieces[i].begin += static_cast<uint32_t>(begin);
      pieces[i].end += static_cast<uint32_t>(begin);
    }
    begin += part.size();
  }
}

void CachedModel::append_ids(std::string_view word, std::vector<int32_t>& ids) const {
  Scratch& scratch = thread_scratch();
  const auto append_part = [&](std::string_view part) {
    append(scratch.ids, serial_, part, scratch.new_ids, ids,
           [&] { append_new_ids(part, scratch.new_ids); });
  };
  if (!has_parts_) return append_part(word);
  while (!word.empty()) {
    const std::string_view part = word.substr(0, end_of_part(word));
    append_part(part);
    word.remove_prefix(part.size());
  }
}

void CachedModel::append_new_ids(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  std::vector<Piece>& pieces = thread_scratch().new_pieces;
  pieces.clear();
  segment(word, pieces);
  for (const Piece& piece : pieces) ids.push_back(piece.id);
}

std::array<int32_t, 256> byte_fallback_ids(const TokenModel& model) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::array<int32_t, 256> ids{};
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string token{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    ids[byte] = model.token_to_id(token).value_or(-1);
  }
  return ids;
}

}  // namespace finetune::tokenizer
