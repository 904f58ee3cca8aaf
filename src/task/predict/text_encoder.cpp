// SPDX-License-Identifier: MIT
#include "task/predict/text_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/utf8.h"
#include "finetune/tokenizer/truncation.h"

namespace finetune {
namespace {

int64_t length_limit(const Tokenizer& tokenizer, const ModelConfig& config) {
  return std::min(config.max_length(), model_max_length(tokenizer).value_or(INT64_MAX));
}

}  // namespace

std::optional<int64_t> model_max_length(const Tokenizer& tokenizer) {
  for (const auto& [name, content] : tokenizer.files()) {
    if (name != kTokenizerConfigFile) continue;
    const auto json = parse_json(content, name);
    const auto found = json.is_object() ? json.find("model_max_length") : json.end();
    if (found == json.end() || !found->is_number()) continue;
    const double length = found->get<double>();  // 1e30: no limit
    if (length >= 1 && length < 1e9) return static_cast<int64_t>(length);
  }
  return std::nullopt;
}

TextEncoder::TextEncoder(const std::string& folder, const ModelConfig& config)
    : tokenizer_(load_tokenizer(folder)),
      vocabulary_(config.vocab_size),
      limit_(length_limit(*tokenizer_, config)) {}

void TextEncoder::check(const std::string& text, const std::string& where) const {
  const size_t invalid = utf8::find_invalid(text);
  if (invalid != std::string::npos) {
    throw Error(ErrorKind::kData, where + ": byte " + std::to_string(invalid + 1) +
                                      " is not valid UTF-8; convert the text to UTF-8");
  }
}

void TextEncoder::check(std::span<const int32_t> ids, const std::string& where) const {
  const auto beyond =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= vocabulary_; });
  if (beyond != ids.end()) {
    throw Error(ErrorKind::kData, where + ": token id " + std::to_string(*beyond) +
                                      " is beyond the model's vocabulary of " +
                                      std::to_string(vocabulary_) +
                                      "; this is not the model's tokenizer");
  }
}

std::vector<int32_t> TextEncoder::ids(const std::string& text, const std::string& where) const {
  check(text, where);
  std::vector<int32_t> ids = tokenizer_->encode(text);
  check(ids, where);
  return ids;
}

Tokens TextEncoder::tokens(const std::string& text, const std::string& where) const {
  check(text, where);
  Tokens tokens = tokenizer_->encode_with_ranges(text);
  check(tokens.ids, where);
  return tokens;
}

Tokens TextEncoder::word(const std::string& word, const std::string& where) const {
  check(word, where);
  const std::vector<int32_t> ids = tokenizer_->encode_word(word);
  check(ids, where);
  Tokens tokens = tokenizer_->encode_with_ranges(word);
  if (tokens.ids == ids) return tokens;
  tokens = tokenizer_->encode_with_ranges(" " + word);
  if (tokens.ids == ids) {
    for (TextRange& range : tokens.ranges) {
      range = {.begin = std::max<int64_t>(range.begin - 1, 0),
               .end = std::max<int64_t>(range.end - 1, 0)};
    }
    return tokens;
  }
  const TextRange whole = {.begin = 0, .end = static_cast<int64_t>(word.size())};
  return {.ids = ids, .ranges = std::vector<TextRange>(ids.size(), whole)};
}

std::span<const int32_t> TextEncoder::keep(std::span<const int32_t> ids, int64_t count) const {
  const auto size = static_cast<size_t>(count);
  return tokenizer_->sides().truncate_left ? ids.last(size) : ids.first(size);
}

void TextEncoder::warn_of_length(int64_t tokens, const std::string& where) {
  if (warned_) return;
  warned_ = true;
  log::warning(where + ": has " + std::to_string(tokens) + " tokens, the model takes " +
               std::to_string(limit_) + "; this text and others that are longer are cut");
}

std::span<const int32_t> TextEncoder::cut(std::span<const int32_t> ids, const std::string& where) {
  const int64_t special = tokenizer_->num_special_tokens_to_add(false);
  const auto size = static_cast<int64_t>(ids.size());
  if (size + special <= limit_) return ids;
  warn_of_length(size + special, where);
  return keep(ids, std::max<int64_t>(limit_ - special, 0));
}

ModelText TextEncoder::pair(std::span<const int32_t> first, std::span<const int32_t> second,
                            const std::string& where) {
  const int64_t special = tokenizer_->num_special_tokens_to_add(true);
  const PairLengths lengths = {.first = static_cast<int64_t>(first.size()),
                               .second = static_cast<int64_t>(second.size())};
  const int64_t all = lengths.first + lengths.second + special;
  if (all > limit_) {
    warn_of_length(all, where);
    const auto kept = truncate(lengths, limit_ - special, Truncation::kLongestFirst);
    if (!kept) {
      throw Error(ErrorKind::kData, where + ": the model takes " + std::to_string(limit_) +
                                        " tokens, too few for two texts; shorten them");
    }
    first = keep(first, kept->first);
    second = keep(second, kept->second);
  }
  return tokenizer_->combine(first, second);
}

Batch make_batch(std::span<const ModelText> rows, int64_t pad_id) {
  Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  for (const ModelText& row : rows) {
    batch.length = std::max(batch.length, static_cast<int64_t>(row.ids.size()));
    batch.tokens += static_cast<int64_t>(row.ids.size());
  }
  const auto length = static_cast<size_t>(batch.length);
  batch.input_ids.assign(rows.size() * length, pad_id);
  batch.attention_mask.assign(rows.size() * length, 0);
  batch.token_type_ids.assign(rows.size() * length, 0);
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto start = static_cast<std::ptrdiff_t>(r * length);
    const ModelText& row = rows[r];
    std::copy(row.ids.begin(), row.ids.end(), batch.input_ids.begin() + start);
    std::fill_n(batch.attention_mask.begin() + start, row.ids.size(), uint8_t{1});
    std::copy(row.token_types.begin(), row.token_types.end(), batch.token_type_ids.begin() + start);
  }
  return batch;
}

}  // namespace finetune
