// SPDX-License-Identifier: MIT
#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <queue>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/word_cache.h"

namespace finetune::tokenizer {
namespace {

constexpr uint64_t kNoPair = std::numeric_limits<uint64_t>::max();
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
// Up to here a plain search for the lowest rank beats a queue.
constexpr size_t kShortWord = 48;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

std::atomic<uint64_t> next_serial{1};

WordCache& thread_cache() {
  thread_local WordCache cache;
  return cache;
}

}  // namespace

BpeModel::BpeModel(BpeParts parts, const std::string& where)
    : fuse_unk_(parts.fuse_unk), ignore_merges_(parts.ignore_merges), serial_(next_serial++) {
  add_vocabulary(std::move(parts.vocabulary), where);
  add_merges(parts.merges, where);
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string token;
    utf8::append(token, byte_chars()[byte]);
    byte_ids_[byte] = token_to_id(token).value_or(-1);
  }
  if (parts.unk_token) {
    const auto id = token_to_id(*parts.unk_token);
    if (!id) {
      throw Error(ErrorKind::kData,
                  where + ": the unk_token '" + *parts.unk_token + "' is not in the vocabulary");
    }
    unk_id_ = *id;
  }
}

void BpeModel::add_vocabulary(std::vector<std::pair<std::string, int32_t>> vocabulary,
                              const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData, where + ": " + what);
  };
  if (vocabulary.empty()) fail("the vocabulary is empty");
  if (static_cast<int64_t>(vocabulary.size()) > kMaxVocabulary) {
    fail("the vocabulary has more than " + std::to_string(kMaxVocabulary) + " tokens");
  }
  int32_t end = 0;
  for (const auto& [token, id] : vocabulary) {
    if (id < 0 || id >= kMaxVocabulary)
      fail("the token '" + token + "' has the id " + std::to_string(id));
    end = std::max(end, id + 1);
  }
  tokens_.resize(static_cast<size_t>(end));
  std::vector<bool> used(tokens_.size());
  for (auto& [token, id] : vocabulary) {
    const auto index = static_cast<size_t>(id);
    if (token.size() > kMaxTokenBytes) {
      fail("the token with the id " + std::to_string(id) + " is longer than " +
           std::to_string(kMaxTokenBytes) + " bytes");
    }
    if (used[index]) {
      fail("the tokens '" + tokens_[index] + "' and '" + token + "' both have the id " +
           std::to_string(id));
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
  if (static_cast<int64_t>(merges.size()) > 2 * kMaxVocabulary) {
    throw Error(ErrorKind::kData,
                where + ": has more than " + std::to_string(2 * kMaxVocabulary) + " merges");
  }
  size_t capacity = 16;
  while (capacity < 2 * merges.size()) capacity *= 2;
  merges_.assign(capacity, {kNoPair, kNoRank, -1});
  merge_mask_ = capacity - 1;
  const auto id_of = [&](const std::string& token, size_t rank) {
    const auto id = token_to_id(token);
    if (!id) {
      throw Error(ErrorKind::kData, where + ": merge " + std::to_string(rank + 1) + " ('" +
                                        merges[rank].first + "' and '" + merges[rank].second +
                                        "') needs the token '" + token +
                                        "', which is not in the vocabulary");
    }
    return *id;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const uint64_t pair = pair_key(id_of(left, rank), id_of(right, rank));
    const int32_t id = id_of(left + right, rank);
    uint64_t slot = mix(pair, 0) & merge_mask_;
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair)
      slot = (slot + 1) & merge_mask_;
    merges_[slot] = {pair, static_cast<int32_t>(rank), id};  // of equal ones the last counts
  }
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  for (uint64_t slot = mix(pair, 0) & merge_mask_; merges_[slot].pair != kNoPair;
       slot = (slot + 1) & merge_mask_) {
    if (merges_[slot].pair == pair) return &merges_[slot];
  }
  return nullptr;
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

void BpeModel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (word.size() > WordCache::kMaxWordBytes) {
    merge_word(word, ids);
    return;
  }
  WordCache& cache = thread_cache();
  cache.use_for(serial_);
  const uint64_t hash = hash_word(word);
  if (const auto known = cache.find(word, hash)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return;
  }
  const size_t before = ids.size();
  merge_word(word, ids);
  cache.insert(word, hash, std::span(ids).subspan(before));
}

void BpeModel::merge_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto id = token_to_id(to_byte_chars(word))) {
      ids.push_back(*id);
      return;
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  start_symbols(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeModel::start_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  for (const char byte : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    const bool fused = id < 0 && fuse_unk_ && after_unknown;
    if (id >= 0) {
      symbols.push_back(id);
    } else if (unk_id_ >= 0 && !fused) {
      symbols.push_back(unk_id_);
    }
    after_unknown = id < 0;
  }
}

void BpeModel::merge_short(std::vector<int32_t>& symbols) const {
  std::array<int32_t, kShortWord> ranks;
  std::array<int32_t, kShortWord> results;
  size_t count = symbols.size();
  const auto look_up = [&](size_t i) {
    const Merge* merge = find_merge(symbols[i], symbols[i + 1]);
    ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    results[i] = merge == nullptr ? -1 : merge->id;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const auto lowest =
        std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1));
    if (*lowest == kNoRank) break;
    const auto at = static_cast<size_t>(lowest - ranks.begin());
    symbols[at] = results[at];
    for (size_t i = at + 1; i + 1 < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = at + 1; i + 2 < count; ++i) {
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --count;
    if (at > 0) look_up(at - 1);
    if (at + 1 < count) look_up(at);
  }
  symbols.resize(count);
}

void BpeModel::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    int32_t rank;
    uint32_t position;
    int32_t left, right, result;
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
    if (const Merge* merge = find_merge(symbols[left], symbols[right])) {
      queue.push({merge->rank, left, symbols[left], symbols[right], merge->id});
    }
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
    const uint32_t right = symbols[left] == top.left ? after[left] : kNone;
    if (right == kNone || symbols[right] != top.right) continue;
    symbols[left] = top.result;
    symbols[right] = -1;  // gone: no candidate has a negative symbol
    after[left] = after[right];
    if (after[left] != kNone) {
      before[after[left]] = left;
      propose(left, after[left]);
    }
    if (before[left] != kNone) propose(before[left], left);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), -1), symbols.end());
}

}  // namespace finetune::tokenizer
