// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/spaced_words.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "tokenizer/models/word_cache.h"

namespace finetune::tokenizer {
namespace {

using Kinds = std::vector<std::string>;

std::atomic<uint64_t> next_words_serial{1};

struct SpacedScratch {
  WordCache<int32_t> cache;
  std::vector<int32_t> ids;
  std::string text;
  std::vector<size_t> ends;
};

SpacedScratch& spaced_scratch() {
  thread_local SpacedScratch scratch;
  return scratch;
}

constexpr const char* kCollapse = R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})";
constexpr const char* kStrip = R"({"type":"Strip","strip_left":true,"strip_right":true})";
constexpr const char* kPrependMetaspace = "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}";

bool is_metaspace(const std::string& kind) {
  return kind.starts_with(R"({"type":"Metaspace")") &&
         kind.find(R"("split":false)") == std::string::npos;
}

// Returns the offset of the first space, or the text's size. Inline, eight bytes at a time, because
// words are too short for a function call.
size_t find_space(std::string_view text) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, 8);
    const uint64_t zeros = bytes ^ (kOnes * ' ');
    const uint64_t found = (zeros - kOnes) & ~zeros & (kOnes << 7);
    if (found != 0) return at + static_cast<size_t>(std::countr_zero(found)) / 8;
  }
  while (at < text.size() && text[at] != ' ') ++at;
  return at;
}

// Whether the normalizer is SentencePiece's: it puts the space in front of a text and collapses
// spaces.
bool is_sentencepiece(Kinds kinds) {
  if (!kinds.empty() && kinds.front() == "Precompiled") kinds.erase(kinds.begin());
  return kinds == Kinds{kCollapse, kStrip, kPrependMetaspace};
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
      simple_(normalizer, pre_tokenizer),
      serial_(next_words_serial++),
      between_(normalizer("a")) {}

// Whether the word has the same result between spaces as alone: marks may combine with a space, and
// white space at a word's ends may be stripped.
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

bool SpacedWords::find_ids(std::string_view word, std::vector<int32_t>& ids) const {
  SpacedScratch& scratch = spaced_scratch();
  ids.clear();
  if (simple_.cut(word, scratch.text, scratch.ends)) {
    size_t begin = 0;
    for (const size_t end : scratch.ends) {
      model_.append_new_ids(std::string_view(scratch.text).substr(begin, end - begin), ids);
      begin = end;
    }
    return true;
  }
  NormalizedText normalized(word, 0, false);
  normalizer_.apply(normalized);
  if (!stands_alone(word, normalized.text())) return false;
  for (const NormalizedText& part : pre_tokenizer_.cut(std::move(normalized))) {
    model_.append_new_ids(part.text(), ids);
  }
  return true;
}

bool SpacedWords::append_ids(std::string_view text, std::vector<int32_t>& ids) const {
  SpacedScratch& scratch = spaced_scratch();
  scratch.cache.use_for(serial_);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, find_space(text));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    if (word.size() > scratch.cache.kMaxWordBytes) return false;
    const WordKey key(word);
    if (const auto known = scratch.cache.find(word, key)) {
      for (const int32_t id : *known) ids.push_back(id);
      continue;
    }
    if (!find_ids(word, scratch.ids)) return false;
    if (scratch.ids.size() <= scratch.cache.kMaxValues) {
      scratch.cache.insert(word, key, scratch.ids);
    }
    ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  }
  return true;
}

}  // namespace finetune::tokenizer
