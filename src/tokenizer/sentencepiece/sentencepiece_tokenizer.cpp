// SPDX-License-Identifier: MIT
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/utf8.h"
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which represents a space

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& file_name,
                                               TokenizerFolder folder)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const std::string where = join_path(folder.path, file_name);
  check_sentencepiece_model(model, where);
  const auto status = processor_->LoadFromSerializedProto(model);
  if (!status.ok()) {
    throw Error(ErrorKind::kData, where + ": SentencePiece refuses this model (" +
                                      std::string(status.message()) + ")");
  }
  pieces_ = processor_->GetPieceSize();
  unk_ = processor_->unk_id();
  name_special_tokens(folder);
  sides_ = folder.sides;
  files_ = std::move(folder.files);
  files_.emplace_back(file_name, std::move(model));
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::name_special_tokens(TokenizerFolder& folder) {
  if (folder.named.empty()) {
    const auto name = [&](const char* key, int id) {
      if (id < 0) return;
      AddedToken token;
      token.content = processor_->IdToPiece(id);
      token.special = true;
      folder.named.emplace_back(key, token);
    };
    name("bos_token", processor_->bos_id());
    name("eos_token", processor_->eos_id());
    name("unk_token", processor_->unk_id());
    name("pad_token", processor_->pad_id());
  }
  int32_t next = pieces_;
  for (auto& [name, token] : folder.named) {
    if (const AddedToken* known = added_.find(std::string_view(token.content))) {
      token.id = known->id;
    } else {
      const auto id = token_to_id(token.content);
      token.id = id ? *id : next++;
      added_.add(token, [](std::string_view text) { return std::string(text); });
    }
    set_special_token(special_tokens_, name, {.text = token.content, .id = token.id});
  }
}

void SentencePieceTokenizer::append_ids(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> own;
  const auto status = processor_->Encode(text, &own);
  if (!status.ok()) {
    throw Error(ErrorKind::kData,
                "SentencePiece could not encode a text (" + std::string(status.message()) + ")");
  }
  ids.insert(ids.end(), own.begin(), own.end());
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  for (const AddedTokens::Part& part : added_.split_raw(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      append_ids(part.text, ids);
    }
  }
  return ids;
}

Tokens SentencePieceTokenizer::encode_with_literals(std::string_view text,
                                                    std::span<const TextRange> literal) const {
  Tokens tokens;
  for (const AddedTokens::Part& part : added_.split_raw(text, literal)) {
    const auto at = static_cast<int64_t>(part.text.data() - text.data());
    if (part.id >= 0) {
      tokens.ids.push_back(part.id);
      tokens.ranges.push_back({at, at + static_cast<int64_t>(part.text.size())});
      continue;
    }
    append_ids(part.text, tokens.ids);
    const auto pieces = processor_->EncodeAsImmutableProto(part.text);
    for (size_t i = 0; i < pieces.pieces_size(); ++i) {
      const auto piece = pieces.pieces(static_cast<int>(i));
      tokens.ranges.push_back({at + int64_t{piece.begin()}, at + int64_t{piece.end()}});
    }
  }
  return tokens;
}

ModelText SentencePieceTokenizer::combine(std::span<const int32_t> first,
                                          std::optional<std::span<const int32_t>> second) const {
  return PostProcessor().combine(first, second);
}

bool SentencePieceTokenizer::continues_word(int32_t id) const {
  if (is_special(id)) return false;
  const std::string token = id_to_token(id);
  return !token.empty() && !token.starts_with(kSpace);
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids,
                                           bool skip_special_tokens) const {
  std::string text;
  std::vector<int> own;
  const auto flush = [&] {
    if (own.empty()) return;
    std::string part;
    const auto status = processor_->Decode(own, &part);
    FT_CHECK(status.ok(), "SentencePiece could not decode ids that it knows");
    text += part;
    own.clear();
  };
  for (const int32_t id : ids) {
    const AddedToken* added = added_.find(id);
    if (added != nullptr) {
      if (skip_special_tokens && added->special) continue;
      flush();
      text += added->content;
    } else if (id >= 0 && id < pieces_) {
      own.push_back(id);
    }
  }
  flush();
  return utf8::replace_invalid(text);
}

int64_t SentencePieceTokenizer::size() const {
  int64_t size = pieces_;
  for (const AddedToken& token : added_.all())
    size = std::max<int64_t>(size, int64_t{token.id} + 1);
  return size;
}

std::optional<int32_t> SentencePieceTokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  const int id = processor_->PieceToId(token);
  if (id == unk_ && processor_->IdToPiece(unk_) != token) return std::nullopt;
  return id;
}

std::string SentencePieceTokenizer::id_to_token(int32_t id) const {
  if (const AddedToken* added = added_.find(id)) return added->content;
  return id >= 0 && id < pieces_ ? processor_->IdToPiece(id) : std::string();
}

bool SentencePieceTokenizer::is_special(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special;
}

}  // namespace finetune::tokenizer
