// SPDX-License-Identifier: MIT
#include "tokenizer/sentencepiece/sentencepiece_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/file_system.h"
#include "tokenizer/models/unigram_model.h"
#include "tokenizer/pipeline/class_pipeline.h"
#include "tokenizer/pipeline/pipeline_files.h"
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

// Default ids of the unk token, if no piece with score 0 is the unk_token.
constexpr int64_t kBigBirdUnknown = 100;
constexpr int64_t kDebertaUnknown = 1;

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

const std::string& content_of(const TokenizerFolder& folder, const char* name) {
  const auto found = std::find_if(folder.named.begin(), folder.named.end(),
                                  [&](const auto& item) { return item.first == name; });
  FT_CHECK(found != folder.named.end(), "the class names all of its tokens");
  return found->second.content;
}

UnigramParts xlm_roberta_model(const SentencePieceSummary& summary, const TokenizerFolder& folder) {
  UnigramParts parts;
  for (const char* name : {"bos_token", "pad_token", "eos_token", "unk_token"}) {
    parts.vocabulary.emplace_back(content_of(folder, name), 0.0);
  }
  for (size_t id = 3; id < summary.pieces.size(); ++id) {
    parts.vocabulary.emplace_back(summary.pieces[id].text, double{summary.pieces[id].score});
  }
  parts.vocabulary.emplace_back(content_of(folder, "mask_token"), 0.0);
  parts.unk_id = 3;
  return parts;
}

// Returns every piece of the model with its own id, as in BigBird's and DeBERTa's tokenizers.
UnigramParts whole_model(const SentencePieceSummary& summary, const TokenizerFolder& folder) {
  UnigramParts parts;
  for (const auto& piece : summary.pieces) {
    parts.vocabulary.emplace_back(piece.text, double{piece.score});
  }
  const std::pair<std::string, double> unknown(content_of(folder, "unk_token"), 0.0);
  const auto found = std::find(parts.vocabulary.begin(), parts.vocabulary.end(), unknown);
  const bool big_bird = class_of(folder) == TokenizerClass::kBigBird;
  parts.unk_id = found != parts.vocabulary.end() ? found - parts.vocabulary.begin()
                 : big_bird                      ? kBigBirdUnknown
                                                 : kDebertaUnknown;
  return parts;
}

// Adds the model's control and user-defined pieces, unless tokenizer_config.json has a list. A
// piece that is already named loses its flags, as in transformers, which adds it a second time.
void add_model_tokens(const SentencePieceSummary& summary, TokenizerFolder& folder) {
  const auto further = [](const auto& item) { return item.first.empty(); };
  if (std::any_of(folder.named.begin(), folder.named.end(), further)) return;
  for (const auto& piece : summary.pieces) {
    const bool control = piece.type == SentencePieceSummary::kControl;
    if (!control && piece.type != SentencePieceSummary::kUserDefined) continue;
    AddedToken token;
    token.content = piece.text;
    token.special = true;
    bool named = false;
    for (auto& [name, known] : folder.named) {
      if (known.content != piece.text) continue;
      known = token;
      named = true;
    }
    token.special = control;
    if (!named) folder.named.emplace_back("", std::move(token));
  }
}

}  // namespace

nlohmann::ordered_json charsmap_json(std::string_view charsmap) {
  if (charsmap.empty()) return nullptr;
  return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(charsmap)}};
}

PipelineParts parse_sentencepiece_model(std::string model, const std::string& file_name,
                                        TokenizerFolder folder) {
  const std::string where = join_path(folder.path, file_name);
  const SentencePieceSummary summary = check_sentencepiece_model(model, where);
  add_class_names(folder);
  add_model_tokens(summary, folder);
  const bool xlm_roberta = class_of(folder) == TokenizerClass::kXlmRoberta;
  PipelineParts parts;
  parts.unigram = true;
  parts.model = std::make_unique<UnigramModel>(
      xlm_roberta ? xlm_roberta_model(summary, folder) : whole_model(summary, folder), where);
  const Json charsmap = charsmap_json(summary.charsmap);
  folder.files.emplace_back(file_name, std::move(model));
  complete_class(folder, charsmap, where, parts, nullptr);
  return parts;
}

}  // namespace finetune::tokenizer
