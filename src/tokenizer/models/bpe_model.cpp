// SPDX-License-Identifier: MIT
#include "tokenizer/models/bpe_model.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/models/word_cache.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr uint64_t kNoMerge = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
// Up to this size a linear search for the lowest rank is faster than a queue.
constexpr size_t kShortWord = 48;
// Maximum size of prefix and suffix, because they are added to characters of every word.
constexpr size_t kMaxAffix = 64;

void append_pieces(const auto& symbols, size_t word_size, std::vector<Piece>& pieces) {
  size_t at = 0;
  for (const auto& symbol : symbols) {
    const size_t end = std::min(at + symbol.size, word_size);
    pieces.push_back({symbol.id, static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
    at = end;
  }
}

}  // namespace

BpeModel::BpeModel(BpeParts parts, const std::string& where)
    : prefix_(std::move(parts.continuing_subword_prefix)),
      suffix_(std::move(parts.end_of_word_suffix)),
      fuse_unk_(parts.fuse_unk),
      ignore_merges_(parts.ignore_merges),
      byte_level_(parts.byte_level) {
  if (prefix_.size() > kMaxAffix || suffix_.size() > kMaxAffix) {
    throw Error(
        ErrorKind::kData,
        format_text("{}: continuing_subword_prefix or end_of_word_suffix is longer than {} bytes",
                    where, kMaxAffix));
  }
  add_vocabulary(std::move(parts.vocabulary), where);
  add_merges(parts.merges, where);
  if (parts.unk_token) {
    const auto id = token_to_id(*parts.unk_token);
    if (!id) {
      throw Error(ErrorKind::kData,
                  where + ": the unk_token '" + *parts.unk_token + "' is not in the vocabulary");
    }
    unk_id_ = *id;
  }
  if (parts.byte_fallback) fallback_ids_ = byte_fallback_ids(*this);
  if (merges_within_words(parts.merges)) segment_parts();
  if (!byte_level_ || !prefix_.empty() || !suffix_.empty()) return;
  byte_ids_.emplace();
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string token;
    utf8::append(token, byte_chars()[byte]);
    const auto id = token_to_id(token);
    if (!id) {
      byte_ids_.reset();
      return;
    }
    (*byte_ids_)[byte] = *id;
  }
}

void BpeModel::add_vocabulary(std::vector<std::pair<std::string, int32_t>> vocabulary,
                              const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData, where + ": " + what);
  };
  if (vocabulary.empty()) fail("the vocabulary is empty");
  if (static_cast<int64_t>(vocabulary.size()) > kMaxVocabulary) {
    fail(format_text("the vocabulary has more than {} tokens", kMaxVocabulary));
  }
  int32_t end = 0;
  for (const auto& [token, id] : vocabulary) {
    if (id < 0 || id >= kMaxVocabulary)
      fail(format_text("the token '{}' has the id {}", token, id));
    end = std::max(end, id + 1);
  }
  tokens_.resize(static_cast<size_t>(end));
  std::vector<bool> used(tokens_.size());
  for (auto& [token, id] : vocabulary) {
    const auto index = static_cast<size_t>(id);
    if (token.size() > kMaxTokenBytes) {
      fail(format_text("the token with the id {} is longer than {} bytes", id, kMaxTokenBytes));
    }
    if (used[index]) {
      fail(format_text("the tokens '{}' and '{}' both have the id {}", tokens_[index], token, id));
    }
    used[index] = true;
    tokens_[index] = std::move(token);
  }
  ids_.reserve(vocabulary.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (!used[id]) continue;
    if (!ids_.emplace(tokens_[id], static_cast<int32_t>(id)).second) {
      fail("the token '" + tokens_[id] + "' is in the vocabulary twice");
    }
  }
}

void BpeModel::add_merges(const std::vector<std::pair<std::string, std::string>>& merges,
                          const std::string& where) {
  id_bits_ = static_cast<int>(std::bit_width(tokens_.size() - 1));
  rank_bits_ = static_cast<int>(std::bit_width(merges.size()));
  // A pair and its rank are stored as 64 bits, of which no valid ones are all set.
  const int64_t most =
      std::min(2 * kMaxVocabulary, (int64_t{1} << std::min(62, 64 - 2 * id_bits_)) - 1);
  if (static_cast<int64_t>(merges.size()) > most) {
    throw Error(ErrorKind::kData, format_text("{}: has more than {} merges", where, most));
  }
  size_t capacity = 16;
  while (capacity < 2 * merges.size()) capacity *= 2;
  merges_.assign(capacity, kNoMerge);
  merge_mask_ = capacity - 1;
  may_merge_.assign(capacity / 16, 0);
  results_.resize(merges.size());
  const auto id_of = [&](const std::string& token, size_t rank) {
    const auto id = token_to_id(token);
    if (!id) {
      throw Error(
          ErrorKind::kData,
          format_text(
              "{}: merge {} ('{}' and '{}') needs the token '{}', which is not in the vocabulary",
              where, rank + 1, merges[rank].first, merges[rank].second, token));
    }
    return *id;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const uint64_t pair = pair_key(id_of(left, rank), id_of(right, rank));
    if (right.size() < prefix_.size()) {
      throw Error(ErrorKind::kData,
                  format_text("{}: merge {} ('{}' and '{}') joins a token without the prefix '{}'",
                              where, rank + 1, left, right, prefix_));
    }
    results_[rank] = id_of(left + right.substr(prefix_.size()), rank);
    const uint64_t hash = mix(pair, 0);
    may_merge_[hash & (merge_mask_ >> 4)] |= uint64_t{1} << (hash >> 58);
    uint64_t slot = hash & merge_mask_;
    while (merges_[slot] != kNoMerge && merges_[slot] >> rank_bits_ != pair)
      slot = (slot + 1) & merge_mask_;
    merges_[slot] = pair << rank_bits_ | rank;  // of equal merges the last one wins
  }
}

bool BpeModel::merges_within_words(
    const std::vector<std::pair<std::string, std::string>>& merges) const {
  // Every character becomes a symbol: of one that is dropped, the neighbours would meet.
  const bool keeps_all = unk_id_ >= 0 || (fallback_ids_ && std::ranges::min(*fallback_ids_) >= 0);
  if (byte_level_ || ignore_merges_ || !keeps_all || !prefix_.empty() || !suffix_.empty() ||
      !token_to_id(kWordStart)) {
    return false;
  }
  return std::ranges::none_of(merges,
                              [](const auto& merge) {
                                const auto& [left, right] = merge;
                                return right.starts_with(kWordStart) && !left.ends_with(kWordStart);
                              }) &&
         !id_to_token(unk_id_).ends_with(kWordStart);
}

uint32_t BpeModel::find_rank(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  const uint64_t hash = mix(pair, 0);
  if ((may_merge_[hash & (merge_mask_ >> 4)] >> (hash >> 58) & 1) == 0) return kNoRank;
  for (uint64_t slot = hash & merge_mask_; merges_[slot] != kNoMerge;
       slot = (slot + 1) & merge_mask_) {
    if (merges_[slot] >> rank_bits_ == pair) {
      return static_cast<uint32_t>(merges_[slot] & ((uint64_t{1} << rank_bits_) - 1));
    }
  }
  return kNoRank;
}

std::optional<int32_t> BpeModel::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string& BpeModel::id_to_token(int32_t id) const {
  static const std::string kNone;
  return id >= 0 && id < end_id() ? tokens_[static_cast<size_t>(id)] : kNone;
}

void BpeModel::segment(std::string_view word, std::vector<Piece>& pieces) const {
  if (!byte_level_) {
    segment_characters(word, pieces);
    return;
  }
  if (byte_ids_) {
    if (ignore_merges_) {
      if (const auto id = token_to_id(to_byte_chars(word))) {
        pieces.push_back({*id, 0, static_cast<uint32_t>(word.size())});
        return;
      }
    }
    thread_local std::vector<Symbol> symbols;
    symbols.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i) {
      symbols[i] = {(*byte_ids_)[static_cast<uint8_t>(word[i])], 1};
    }
    merge(symbols);
    append_pieces(symbols, word.size(), pieces);
    return;
  }
  // The word is spelled in byte-level characters, each of which represents one byte.
  const size_t first = pieces.size();
  const std::string characters = to_byte_chars(word);
  segment_characters(characters, pieces);
  std::vector<uint32_t> starts;
  for (size_t i = 0; i < characters.size(); ++i) {
    if ((static_cast<uint8_t>(characters[i]) & 0xC0) != 0x80) {
      starts.push_back(static_cast<uint32_t>(i));
    }
  }
  for (size_t i = first; i < pieces.size(); ++i) {
    const auto begin = std::upper_bound(starts.begin(), starts.end(), pieces[i].begin);
    const auto end = std::lower_bound(starts.begin(), starts.end(), pieces[i].end);
    pieces[i].begin = static_cast<uint32_t>(begin - starts.begin()) - 1;
    pieces[i].end = static_cast<uint32_t>(end - starts.begin());
  }
}

void BpeModel::segment_characters(std::string_view word, std::vector<Piece>& pieces) const {
  if (ignore_merges_) {
    if (const auto id = token_to_id(word)) {
      pieces.push_back({*id, 0, static_cast<uint32_t>(word.size())});
      return;
    }
  }
  thread_local std::vector<Symbol> symbols;
  symbols.clear();
  start_symbols(word, symbols);
  merge(symbols);
  append_pieces(symbols, word.size(), pieces);
}

bool BpeModel::append_bytes(std::string_view character, std::vector<Symbol>& symbols) const {
  if (!fallback_ids_) return false;
  const auto id_of = [&](char byte) { return (*fallback_ids_)[static_cast<uint8_t>(byte)]; };
  for (const char byte : character) {
    if (id_of(byte) < 0) return false;
  }
  for (const char byte : character) symbols.push_back({id_of(byte), 1});
  return true;
}

void BpeModel::start_symbols(std::string_view word, std::vector<Symbol>& symbols) const {
  std::string spelled;
  uint32_t unknown = 0;  // pending bytes of the unk token
  for (size_t at = 0; at < word.size();) {
    size_t after = at;
    static_cast<void>(utf8::decode(word, after));
    const auto size = static_cast<uint32_t>(after - at);
    std::string_view character = word.substr(at, size);
    const bool takes_prefix = at > 0 && !prefix_.empty();
    const bool takes_suffix = after == word.size() && !suffix_.empty();
    if (takes_prefix || takes_suffix) {
      spelled.assign(takes_prefix ? prefix_ : "").append(character);
      if (takes_suffix) spelled.append(suffix_);
      character = spelled;
    }
    at = after;
    if (const auto id = token_to_id(character)) {
      if (unknown > 0) symbols.push_back({unk_id_, unknown});
      unknown = 0;
      symbols.push_back({*id, size});
    } else if (!append_bytes(character, symbols) && unk_id_ >= 0) {
      // As in the tokenizers package: byte tokens do not flush a pending unk token.
      if (unknown > 0 && !fuse_unk_) {
        symbols.push_back({unk_id_, unknown});
        unknown = 0;
      }
      unknown += size;
    }
  }
  if (unknown > 0) symbols.push_back({unk_id_, unknown});
}

void BpeModel::merge(std::vector<Symbol>& symbols) const {
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

// Merged positions stay, and the search for the lowest rank has no branch that depends on a rank:
// words are too short for anything else to pay.
void BpeModel::merge_short(std::vector<Symbol>& symbols) const {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  // Of the pair that begins at a position: its rank, and the position in the low byte.
  std::array<uint64_t, kShortWord> keys;
  std::array<uint8_t, kShortWord> next;
  std::array<uint8_t, kShortWord> before;
  const size_t count = symbols.size();
  const auto look_up = [&](size_t i, size_t after) {
    const uint32_t rank = find_rank(symbols[i].id, symbols[after].id);
    keys[i] = rank == kNoRank ? kNone : uint64_t{rank} << 8 | i;
  };
  for (size_t i = 0; i < count; ++i) {
    next[i] = static_cast<uint8_t>(i + 1);
    before[i] = static_cast<uint8_t>(i - 1);
  }
  for (size_t i = 0; i + 1 < count; ++i) look_up(i, i + 1);
  for (;;) {
    uint64_t lowest = kNone;
    for (size_t i = 0; i + 1 < count; ++i) lowest = std::min(lowest, keys[i]);
    if (lowest == kNone) break;
    const size_t at = lowest & 0xFF;
    const size_t removed = next[at];
    const size_t after = next[removed];
    symbols[at] = {results_[lowest >> 8], symbols[at].size + symbols[removed].size};
    symbols[removed].id = -1;
    next[at] = static_cast<uint8_t>(after);
    keys[at] = keys[removed] = kNone;
    if (after < count) {
      before[after] = static_cast<uint8_t>(at);
      look_up(at, after);
    }
    if (at > 0) look_up(before[at], at);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

void BpeModel::merge_long(std::vector<Symbol>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t position;
    int32_t left, right;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> before(count);
  std::vector<uint32_t> after(count);
  std::vector<Candidate> store;
  store.reserve(count);
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later,
                                                                                std::move(store));
  const auto propose = [&](uint32_t left, uint32_t right) {
    const uint32_t rank = find_rank(symbols[left].id, symbols[right].id);
    if (rank != kNoRank) queue.push({rank, left, symbols[left].id, symbols[right].id});
  };
  for (uint32_t i = 0; i < count; ++i) {
    before[i] = i == 0 ? kNone : i - 1;
    after[i] = i + 1 == count ? kNone : i + 1;
  }
  for (uint32_t i = 0; i + 1 < count; ++i) propose(i, i + 1);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const uint32_t left = top.position;
    const uint32_t right = symbols[left].id == top.left ? after[left] : kNone;
    if (right == kNone || symbols[right].id != top.right) continue;
    symbols[left] = {results_[top.rank], symbols[left].size + symbols[right].size};
    symbols[right].id = -1;  // removed: no candidate has a negative symbol
    after[left] = after[right];
    if (after[left] != kNone) {
      before[after[left]] = left;
      propose(left, after[left]);
    }
    if (before[left] != kNone) propose(before[left], left);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace finetune::tokenizer
