// SPDX-License-Identifier: MIT
#include "tokenizer/models/unigram_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr size_t kMaxTotalBytes = size_t{64} << 20;
// Of a position that no path reaches yet: nothing is less than or equal to it.
constexpr double kNotReached = std::numeric_limits<double>::quiet_NaN();
// Memory for longer words is released.
constexpr size_t kKeptSteps = size_t{1} << 16;

}  // namespace

double score_as_read(double score) {
  if (score == 0 || !std::isfinite(score)) return score;
  std::array<char, 32> text;  // d.dddde-dd with the fewest digits, as in JSON
  const auto end =
      std::to_chars(text.begin(), text.end(), std::abs(score), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  bool after_point = false;
  const char* at = text.begin();
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      after_point = true;
    } else {
      digits = 10 * digits + static_cast<uint64_t>(*at - '0');
      if (after_point) --exponent;
    }
  }
  int written = 0;
  std::from_chars(at + (at[1] == '+' ? 2 : 1), end, written);
  exponent += written;
  auto value = static_cast<double>(digits);
  for (; exponent < -308; exponent += 308) value /= 1e308;
  const std::string spelled = format_text("1e{}", std::abs(exponent));
  double power = 1;
  std::from_chars(spelled.data(), spelled.data() + spelled.size(), power);
  value = exponent < 0 ? value / power : value * power;
  return std::copysign(value, score);
}

UnigramModel::UnigramModel(UnigramParts parts, const std::string& where) {
  check(parts, where);
  double min_score = std::numeric_limits<double>::infinity();
  tokens_.reserve(parts.vocabulary.size());
  scores_.reserve(parts.vocabulary.size());
  for (auto& [token, score] : parts.vocabulary) {
    tokens_.push_back(std::move(token));
    scores_.push_back(score);
    min_score = std::min(min_score, score);
  }
  unk_score_ = min_score - kUnknownPenalty;
  unk_id_ = parts.unk_id ? static_cast<int32_t>(*parts.unk_id) : -1;
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) ids_[tokens_[id]] = static_cast<int32_t>(id);
  std::vector<std::pair<std::string_view, int32_t>> strings(ids_.begin(), ids_.end());
  std::sort(strings.begin(), strings.end());
  trie_ = CharTrie(strings, where);
  if (parts.byte_fallback) fallback_ids_ = byte_fallback_ids(*this);
}

void UnigramModel::check(const UnigramParts& parts, const std::string& where) const {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorKind::kData, where + ": " + what);
  };
  const auto count = static_cast<int64_t>(parts.vocabulary.size());
  if (count == 0) fail("the vocabulary is empty");
  if (count > kMaxVocabulary) {
    fail(format_text("the vocabulary has more than {} tokens", kMaxVocabulary));
  }
  if (parts.unk_id && (*parts.unk_id < 0 || *parts.unk_id >= count)) {
    fail(format_text("the unk_id {} is not one of the {} tokens", *parts.unk_id, count));
  }
  size_t total = 0;
  for (int64_t id = 0; id < count; ++id) {
    const auto& [token, score] = parts.vocabulary[static_cast<size_t>(id)];
    const std::string which = format_text("the token with the id {}", id);
    if (token.size() > kMaxTokenBytes) {
      fail(format_text("{} is longer than {} bytes", which, kMaxTokenBytes));
    }
    if (!std::isfinite(score)) fail("the score of " + which + " is not a finite number");
    total += token.size();
  }
  if (total > kMaxTotalBytes) {
    fail(format_text("the tokens are longer than {} bytes together", kMaxTotalBytes));
  }
}

std::optional<int32_t> UnigramModel::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string& UnigramModel::id_to_token(int32_t id) const {
  static const std::string kNone;
  return id >= 0 && id < end_id() ? tokens_[static_cast<size_t>(id)] : kNone;
}

// Does the first look-up for every position before the second ones and prefetches their memory, so
// that look-ups do not wait for each other.
size_t UnigramModel::find_characters(std::string_view word, Lattice& lattice) const {
  std::vector<Character>& characters = lattice.characters;
  if (characters.size() < word.size() + 1) characters.resize(word.size() + 1);
  size_t count = 0;
  const CharTrie::Step* before = nullptr;
  for (size_t at = 0; at < word.size(); ++count) {
    const auto begin = static_cast<uint32_t>(at);
    const char32_t c = utf8::decode(word, at);
    if (before != nullptr) trie_.prefetch_next(*before, c);
    before = trie_.first(c);
    characters[count] = {before, c, begin};
  }
  characters[count] = {nullptr, 0, static_cast<uint32_t>(word.size())};
  return count;
}

void UnigramModel::find_best(std::string_view word, Lattice& lattice) const {
  const size_t count = find_characters(word, lattice);
  const Character* characters = lattice.characters.data();
  lattice.steps.assign(count + 1, {kNotReached, -1, 0});
  Step* steps = lattice.steps.data();
  steps[0].score = 0;
  for (size_t start = 0; start < count; ++start) {
    const double score = steps[start].score;
    const auto offer = [&](size_t end, int32_t id, double candidate) {
      if (candidate <= steps[end].score) return;
      steps[end] = {candidate, id, static_cast<uint32_t>(start)};
    };
    const CharTrie::Step* found = characters[start].step;
    if (found == nullptr || found->value < 0) offer(start + 1, unk_id_, unk_score_ + score);
    for (size_t end = start + 1; found != nullptr; ++end) {
      if (found->value >= 0) {
        offer(end, found->value, scores_[static_cast<size_t>(found->value)] + score);
      }
      if (end == count) break;
      found = trie_.next(*found, characters[end].value);
    }
  }
}

void UnigramModel::segment(std::string_view word, std::vector<Piece>& pieces) const {
  thread_local Lattice lattice;
  find_best(word, lattice);
  auto& [characters, steps, path] = lattice;
  path.clear();
  for (auto end = static_cast<uint32_t>(steps.size() - 1); end > 0;) {
    const Step& step = steps[end];
    if (step.id == unk_id_ && !path.empty() && path.back().id == unk_id_) {
      path.back().begin = characters[step.start].begin;
    } else {
      path.push_back({step.id, characters[step.start].begin, characters[end].begin});
    }
    end = step.start;
  }
  for (auto piece = path.rbegin(); piece != path.rend(); ++piece) {
    if (piece->id == unk_id_) {
      append_unknown(word, *piece, pieces);
    } else {
      pieces.push_back(*piece);
    }
  }
  if (steps.size() > kKeptSteps) lattice = {};
}

void UnigramModel::append_unknown(std::string_view word, Piece piece,
                                  std::vector<Piece>& pieces) const {
  const std::string_view text = word.substr(piece.begin, piece.end - piece.begin);
  if (const auto id = token_to_id(text)) {  // the fused text may be a token
    pieces.push_back({*id, piece.begin, piece.end});
    return;
  }
  if (fallback_ids_) {
    const auto id_of = [&](char byte) { return (*fallback_ids_)[static_cast<uint8_t>(byte)]; };
    if (std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) >= 0; })) {
      for (const char byte : text) pieces.push_back({id_of(byte), piece.begin, piece.end});
      return;
    }
  }
  if (unk_id_ < 0) {
    throw Error(ErrorKind::kData,
                "the tokenizer has no token for '" + std::string(text) +
                    "' and no unk_id; give its model an unk_id in tokenizer.json");
  }
  pieces.push_back(piece);
}

}  // namespace finetune::tokenizer
