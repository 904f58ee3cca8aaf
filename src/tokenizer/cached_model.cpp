// SPDX-License-Identifier: MIT
#include "tokenizer/cached_model.h"

#include <atomic>

#include "tokenizer/word_cache.h"

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

}  // namespace

CachedModel::CachedModel() : serial_(next_serial++) {}

void CachedModel::tokenize(std::string_view word, std::vector<Piece>& pieces) const {
  Scratch& scratch = thread_scratch();
  append(scratch.pieces, serial_, word, scratch.new_pieces, pieces,
         [&] { segment(word, scratch.new_pieces); });
}

void CachedModel::append_ids(std::string_view word, std::vector<int32_t>& ids) const {
  Scratch& scratch = thread_scratch();
  append(scratch.ids, serial_, word, scratch.new_ids, ids,
         [&] { append_new_ids(word, scratch.new_ids); });
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
