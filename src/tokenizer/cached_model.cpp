// SPDX-License-Identifier: MIT
#include "tokenizer/cached_model.h"

#include <atomic>

#include "tokenizer/word_cache.h"

namespace finetune::tokenizer {
namespace {

std::atomic<uint64_t> next_serial{1};

struct Scratch {
  WordCache cache;
  std::vector<Piece> pieces;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace

CachedModel::CachedModel() : serial_(next_serial++) {}

std::span<const Piece> CachedModel::pieces_of(std::string_view word) const {
  if (word.empty()) return {};
  Scratch& scratch = thread_scratch();
  const bool cached = word.size() <= WordCache::kMaxWordBytes;
  const uint64_t hash = cached ? hash_word(word) : 0;
  if (cached) {
    scratch.cache.use_for(serial_);
    if (const auto known = scratch.cache.find(word, hash)) return *known;
  }
  scratch.pieces.clear();
  segment(word, scratch.pieces);
  // Byte fallback can make more pieces of a word than it has bytes: such ones are not worth it.
  if (cached && scratch.pieces.size() <= WordCache::kMaxWordBytes) {
    scratch.cache.insert(word, hash, scratch.pieces);
  }
  return scratch.pieces;
}

void CachedModel::tokenize(std::string_view word, std::vector<Piece>& pieces) const {
  const auto known = pieces_of(word);
  pieces.insert(pieces.end(), known.begin(), known.end());
}

void CachedModel::append_ids(std::string_view word, std::vector<int32_t>& ids) const {
  for (const Piece& piece : pieces_of(word)) ids.push_back(piece.id);
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
