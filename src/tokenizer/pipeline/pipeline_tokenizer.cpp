// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/pipeline_tokenizer.h"

#include <algorithm>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "tokenizer/regex/text_cutter.h"
#include "tokenizer/unicode/byte_level.h"

namespace finetune::tokenizer {
namespace {

constexpr std::string_view kByteLevelSpace = "\xC4\xA0";     // U+0120
constexpr std::string_view kMetaspaceText = "\xE2\x96\x81";  // U+2581

bool is_space_of_token(char32_t c) { return c == 0x120 || char_class(c) == CharClass::kSpace; }

// Returns the number of white-space characters at the start and at the end of a token's text.
std::pair<int64_t, int64_t> spaces_around(std::string_view token) {
  int64_t leading = 0;
  int64_t trailing = 0;
  bool seen = false;
  for (size_t offset = 0; offset < token.size();) {
    const bool space = is_space_of_token(utf8::decode(token, offset));
    seen = seen || !space;
    if (!seen) ++leading;
    trailing = space ? trailing + 1 : 0;
  }
  return {leading, trailing};
}

bool continues_char(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Returns the offset `count` characters after `at`, at most `end`.
int64_t forward(std::string_view text, int64_t at, int64_t count, int64_t end) {
  for (; count > 0 && at < end; --count) {
    ++at;
    while (at < end && continues_char(text[static_cast<size_t>(at)])) ++at;
  }
  return at;
}

// Returns the offset `count` characters before `at`; nullopt if there are fewer.
std::optional<int64_t> backward(std::string_view text, int64_t at, int64_t count) {
  for (; count > 0; --count) {
    if (at == 0) return std::nullopt;
    --at;
    while (at > 0 && continues_char(text[static_cast<size_t>(at)])) --at;
  }
  return at;
}

}  // namespace

// Passes one text through the parts.
class PipelineTokenizer::Run {
 public:
  Run(const PipelineTokenizer& owner, std::string_view text, bool with_ranges,
      std::optional<ByteLevel> byte_level, std::span<const TextRange> literal = {})
      : owner_(owner),
        parts_(owner.parts_),
        text_(text),
        with_ranges_(with_ranges),
        byte_level_(byte_level),
        literal_(literal) {}

  Tokens operator()() {
    const bool with_origins = with_ranges_ || parts_.pre_tokenizer.needs_origins();
    for (const AddedTokens::Part& part : owner_.added_.split_raw(text_, literal_)) {
      const auto begin = static_cast<uint32_t>(part.text.data() - text_.data());
      if (part.id >= 0) {
        push(part.id, {begin, begin + static_cast<uint32_t>(part.text.size())}, part.text);
        continue;
      }
      if (with_ranges_ && is_plain(part.text)) {
        cut_plain(part.text);
        continue;
      }
      NormalizedText normalized(part.text, begin, with_origins);
      parts_.normalizer.apply(normalized);
      cut(normalized);
    }
    return std::move(tokens_);
  }

 private:
  // Whether the words are parts of the text itself.
  [[nodiscard]] bool is_plain(std::string_view text) const {
    return owner_.is_plain(byte_level_) && parts_.normalizer.leaves(text) &&
           !(byte_level_->add_prefix_space && !text.starts_with(' '));
  }

  void cut_plain(std::string_view text) {
    for (const AddedTokens::Part& part : owner_.added_.split_normalized(text)) {
      const auto begin = static_cast<size_t>(part.text.data() - text_.data());
      if (part.id >= 0) {
        push(part.id, characters(begin, begin + part.text.size()), part.text);
      } else if (byte_level_->add_prefix_space && !part.text.starts_with(' ')) {
        Words words{NormalizedText(part.text, static_cast<uint32_t>(begin), true)};
        tokenize(words);
      } else {
        owner_.for_each_piece(part.text, 0, [&](std::string_view word) {
          const auto offset = static_cast<size_t>(word.data() - text_.data());
          pieces_.clear();
          parts_.model->tokenize(word, pieces_);
          for (const Piece& piece : pieces_) {
            push(piece.id, characters(offset + piece.begin, offset + piece.end));
          }
        });
      }
    }
  }

  // Returns the range of the characters that the bytes [begin, end) of the text belong to.
  [[nodiscard]] NormalizedText::Origin characters(size_t begin, size_t end) const {
    while (begin > 0 && continues_char(text_[begin])) --begin;
    while (end < text_.size() && continues_char(text_[end])) ++end;
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  }

  void cut(const NormalizedText& normalized) {
    const std::string_view text = normalized.text();
    for (const AddedTokens::Part& part : owner_.added_.split_normalized(text)) {
      const auto begin = static_cast<size_t>(part.text.data() - text.data());
      const size_t end = begin + part.text.size();
      if (part.id >= 0) {
        push(part.id, origin_of(normalized, begin, end), part.text);
        continue;
      }
      Words words;
      words.push_back(normalized.slice(begin, end));
      tokenize(words);
    }
  }

  void tokenize(Words& words) {
    parts_.pre_tokenizer.apply(words);
    if (byte_level_) apply_byte_level(*byte_level_, words);
    for (const NormalizedText& word : words) tokenize(word);
  }

  void tokenize(const NormalizedText& word) {
    if (!with_ranges_) {
      parts_.model->append_ids(word.text(), tokens_.ids);
      return;
    }
    pieces_.clear();
    parts_.model->tokenize(word.text(), pieces_);
    const std::string_view text = word.text();
    for (const Piece& piece : pieces_) {
      if (parts_.unigram) {
        push(piece.id, origin_of(word, piece.begin, piece.end),
             text.substr(piece.begin, piece.end - piece.begin));
      } else {
        push(piece.id, origin_of(word, piece.begin, piece.end));
      }
    }
  }

  [[nodiscard]] NormalizedText::Origin origin_of(const NormalizedText& word, size_t begin,
                                                 size_t end) const {
    return with_ranges_ ? word.origin(begin, end) : NormalizedText::Origin{};
  }

  // A token of the model that is spelled as in its vocabulary.
  void push(int32_t id, NormalizedText::Origin origin) {
    const bool trims = with_ranges_ && !parts_.post_processor.trims().empty();
    push(id, origin, trims ? std::string_view(parts_.model->id_to_token(id)) : std::string_view());
  }

  // `spelling` is the token's value in the package.
  void push(int32_t id, NormalizedText::Origin origin, std::string_view spelling) {
    tokens_.ids.push_back(id);
    if (!with_ranges_) return;
    TextRange range{origin.begin, origin.end};
    if (!parts_.post_processor.trims().empty()) {
      const auto [leading, trailing] = spaces_around(spelling);
      for (const PostProcessor::Trim& trim : parts_.post_processor.trims()) {
        range = trimmed(range, leading, trailing, trim);
      }
    }
    tokens_.ranges.push_back(range);
  }

  [[nodiscard]] TextRange trimmed(TextRange range, int64_t leading, int64_t trailing,
                                  const PostProcessor::Trim& trim) const {
    if (leading > 0) {
      const bool first = (tokens_.ranges.empty() && !trim.after_special) || range.begin == 0;
      // The space that add_prefix_space inserted is not part of the text.
      if (!(first && trim.add_prefix_space && leading == 1)) {
        range.begin = forward(text_, range.begin, leading, range.end);
      }
    }
    if (trailing > 0) {
      if (const auto end = backward(text_, range.end, trailing)) {
        range.end = std::max(*end, range.begin);
      }
    }
    return range;
  }

  const PipelineTokenizer& owner_;
  const PipelineParts& parts_;
  std::string_view text_;
  bool with_ranges_;
  std::optional<ByteLevel> byte_level_;
  std::span<const TextRange> literal_;
  Tokens tokens_;
  std::vector<Piece> pieces_;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  size_ = parts_.model->end_id();
  for (const AddedToken& token : parts_.added_tokens) {
    added_.add(token, parts_.normalizer);
    size_ = std::max<int64_t>(size_, int64_t{token.id} + 1);
  }
  if (const auto& byte_level = parts_.pre_tokenizer.byte_level()) {
    cutters_ = parts_.pre_tokenizer.cutters();
    if (cutters_ && byte_level->use_regex) cutters_->push_back(&gpt2_cutter());
  }
  if (!added_.any_normalized() && SpacedWords::serve(parts_.normalizer, parts_.pre_tokenizer)) {
    spaced_words_ =
        std::make_unique<const SpacedWords>(parts_.normalizer, parts_.pre_tokenizer, *parts_.model);
  }
}

bool PipelineTokenizer::is_plain(const std::optional<ByteLevel>& byte_level) const {
  // If there are other steps before it, each of their words gets a space in front.
  return cutters_ && byte_level && (parts_.pre_tokenizer.empty() || !byte_level->add_prefix_space);
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text) const {
  return encode(text, false);
}

std::vector<int32_t> PipelineTokenizer::encode_word(std::string_view word) const {
  return encode(word, true);
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, bool add_prefix_space) const {
  FT_CHECK(text.size() < std::numeric_limits<uint32_t>::max(), "a text has 4 GiB or more");
  std::optional<ByteLevel> byte_level = parts_.pre_tokenizer.byte_level();
  if (byte_level && add_prefix_space) byte_level->add_prefix_space = true;
  std::vector<int32_t> ids;
  if (spaced_words_ && append_spaced(text, ids)) return ids;
  if (!is_plain(byte_level)) return Run(*this, text, false, byte_level)().ids;
  ids.reserve(text.size() / 3 + 8);
  for (const AddedTokens::Part& part : added_.split_raw(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    std::string normalized;
    std::string_view rest = part.text;
    if (!parts_.normalizer.empty()) {
      normalized = parts_.normalizer(part.text);
      rest = normalized;
    }
    for (const AddedTokens::Part& inner : added_.split_normalized(rest)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        append_plain(inner.text, *byte_level, ids);
      }
    }
  }
  return ids;
}

bool PipelineTokenizer::append_spaced(std::string_view text, std::vector<int32_t>& ids) const {
  ids.reserve(text.size() / 3 + 8);
  for (const AddedTokens::Part& part : added_.split_raw(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else if (!spaced_words_->append_ids(part.text, ids)) {
      ids.clear();
      return false;
    }
  }
  return true;
}

void PipelineTokenizer::append_plain(std::string_view text, const ByteLevel& byte_level,
                                     std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::string with_space;
  if (byte_level.add_prefix_space && text.front() != ' ') {
    with_space.append(" ").append(text);
    text = with_space;
  }
  for_each_piece(text, 0, [&](std::string_view word) { parts_.model->append_ids(word, ids); });
}

template <class Visit>
void PipelineTokenizer::for_each_piece(std::string_view text, size_t step,
                                       const Visit& visit) const {
  if (step == cutters_->size()) {
    visit(text);
    return;
  }
  thread_local std::vector<std::vector<uint32_t>> all_ends;  // by step
  if (all_ends.size() <= step) all_ends.resize(cutters_->size());
  all_ends[step].clear();
  (*cutters_)[step]->cut(text, all_ends[step]);
  size_t begin = 0;
  for (size_t i = 0; i < all_ends[step].size(); ++i) {
    const size_t end = all_ends[step][i];
    for_each_piece(text.substr(begin, end - begin), step + 1, visit);
    begin = end;
  }
}

Tokens PipelineTokenizer::encode_with_literals(std::string_view text,
                                               std::span<const TextRange> literal) const {
  FT_CHECK(text.size() < std::numeric_limits<uint32_t>::max(), "a text has 4 GiB or more");
  return Run(*this, text, true, parts_.pre_tokenizer.byte_level(), literal)();
}

ModelText PipelineTokenizer::combine(std::span<const int32_t> first,
                                     std::optional<std::span<const int32_t>> second) const {
  ModelText text = parts_.post_processor.combine(first, second);
  if (!parts_.token_types) std::fill(text.token_types.begin(), text.token_types.end(), uint8_t{0});
  return text;
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids,
                                      bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const std::string* added = added_.decoded(id);
    const std::string& token = added != nullptr ? *added : parts_.model->id_to_token(id);
    if (token.empty() || (skip_special_tokens && added_.is_special(token))) continue;
    tokens.push_back(token);
  }
  return utf8::replace_invalid(parts_.decoder(std::move(tokens)));
}

std::optional<int32_t> PipelineTokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  return parts_.model->token_to_id(token);
}

std::string PipelineTokenizer::id_to_token(int32_t id) const {
  if (const AddedToken* added = added_.find(id)) return added->content;
  return parts_.model->id_to_token(id);
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special;
}

bool PipelineTokenizer::continues_word(int32_t id) const {
  if (added_.find(id) != nullptr) return false;  // a user-defined symbol is a separate word
  const std::string token = id_to_token(id);
  if (!parts_.continuing_prefix.empty()) return token.starts_with(parts_.continuing_prefix);
  return !token.empty() && !token.starts_with(kByteLevelSpace) &&
         !token.starts_with(kMetaspaceText);
}

}  // namespace finetune::tokenizer
