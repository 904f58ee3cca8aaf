// SPDX-License-Identifier: MIT
#include "tokenizer/spaced_words.h"

#include <algorithm>
#include <atomic>

#include "tokenizer/word_cache.h"

namespace finetune::tokenizer {
namespace {

using Kinds = std::vector<std::string>;

std::atomic<uint64_t> next_serial{1};

struct Scratch {
  WordCache cache;
  std::vector<int32_t> ids;
  std::vector<Piece> pieces;
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

constexpr const char* kCollapse = R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})";
constexpr const char* kStrip = R"({"type":"Strip","strip_left":true,"strip_right":true})";
constexpr const char* kPrepend = "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}";

bool is_metaspace(const std::string& kind) {
  return kind.starts_with(R"({"type":"Metaspace")") &&
         kind.find(R"("split":false)") == std::string::npos;
}

// The space in front of a text is the normalizer's, and spaces side by side become one.
bool is_sentencepiece(Kinds kinds) {
  if (!kinds.empty() && kinds.front() == "Precompiled") kinds.erase(kinds.begin());
  return kinds == Kinds{kCollapse, kStrip, kPrepend};
}

}  // namespace

bool SpacedWords::serve(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer) {
  if (pre_tokenizer.needs_origins() || pre_tokenizer.byte_level()) return false;
  const Kinds& normal = normalizer.kinds();
  const Kinds& cut = pre_tokenizer.kinds();
  if (cut.size() == 1 && cut[0] == R"({"type":"BertPreTokenizer"})") {
    return normal.size() == 1 && normal[0].starts_with(R"({"type":"BertNormalizer")");
  }
  if (cut.size() == 2 && cut[0] == R"({"type":"WhitespaceSplit"})" && is_metaspace(cut[1])) {
    return normal.empty() || normal == Kinds{"Precompiled"};
  }
  return cut.size() == 1 && is_metaspace(cut[0]) &&
         cut[0].find(R"("prepend_scheme":"never")") != std::string::npos &&
         is_sentencepiece(normal);
}

SpacedWords::SpacedWords(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer,
                         const TokenModel& model)
    : normalizer_(normalizer),
      pre_tokenizer_(pre_tokenizer),
      model_(model),
      serial_(next_serial++),
      between_(normalizer("a")) {}

// Whether words between spaces become what they become alone: marks may join a space, white space
// at a word's ends may be stripped.
bool SpacedWords::stands_alone(std::string_view word, const std::string& normalized) const {
  const size_t prefix = between_.size() - 1;
  std::string expected = between_;
  if (normalized.size() < prefix) {
    if (!normalized.empty()) return false;
  } else if (prefix == 0 || normalized.size() > prefix) {
    (expected += ' ').append(normalized, prefix);
  }
  expected += " a";
  return normalizer_("a " + std::string(word) + " a") == expected;
}

bool SpacedWords::append_ids(std::string_view text, std::vector<int32_t>& ids) const {
  Scratch& scratch = thread_scratch();
  scratch.cache.use_for(serial_);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    if (word.size() > WordCache::kMaxWordBytes) return false;
    const uint64_t hash = hash_word(word);
    if (const auto known = scratch.cache.find(word, hash)) {
      for (const Piece& piece : *known) ids.push_back(piece.id);
      continue;
    }
    NormalizedText normalized(word, 0, false);
    normalizer_.apply(normalized);
    if (!stands_alone(word, normalized.text())) return false;
    Words words;
    if (!normalized.empty()) words.push_back(std::move(normalized));
    pre_tokenizer_.apply(words);
    scratch.ids.clear();
    for (const NormalizedText& part : words) model_.append_ids(part.text(), scratch.ids);
    scratch.pieces.clear();
    for (const int32_t id : scratch.ids) scratch.pieces.push_back({.id = id});
    if (scratch.pieces.size() <= WordCache::kMaxWordBytes) {
      scratch.cache.insert(word, hash, scratch.pieces);
    }
    ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  }
  return true;
}

}  // namespace finetune::tokenizer
