// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/models/bpe_model.h"
#include "tokenizer/models/unigram_model.h"
#include "tokenizer/models/wordpiece_model.h"
#include "tokenizer/unicode/byte_level.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

std::pair<std::string, std::string> split_merge(const std::string& text,
                                                const std::string& position) {
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    throw Error(ErrorKind::kData, position + ": a merge is two tokens with one space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<std::pair<std::string, std::string>> read_merges(const Json& json,
                                                             const std::string& where) {
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(json.size());
  for (const Json& item : json) {
    const std::string position = format_text("{}: merge {}", where, merges.size() + 1);
    if (item.is_string()) {
      merges.push_back(split_merge(item.get<std::string>(), position));
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
    } else {
      throw Error(ErrorKind::kData, position + " must be \"a b\" or [\"a\", \"b\"]");
    }
  }
  return merges;
}

std::string unk_content(const TokenizerFolder& folder, const char* otherwise) {
  for (const auto& [name, token] : folder.named) {
    if (name == "unk_token") return token.content;
  }
  return otherwise;
}

std::unique_ptr<TokenModel> read_bpe(const Json& json, const std::string& where,
                                     TokenizerClass which, const TokenizerFolder& folder,
                                     bool byte_level) {
  const auto dropout = json.find("dropout");
  if (dropout != json.end() && !dropout->is_null() && *dropout != 0.0) {
    throw unsupported(where, "BPE dropout");
  }
  BpeParts bpe;
  bpe.vocabulary = read_vocabulary(object_field(json, "vocab", where), where);
  bpe.merges = read_merges(array_field(json, "merges", where), where);
  bpe.byte_level = byte_level;
  if (which == TokenizerClass::kLlama || which == TokenizerClass::kGemma) {
    bpe.fuse_unk = true;
    bpe.byte_fallback = true;
    if (which == TokenizerClass::kGemma) bpe.unk_token = unk_content(folder, "<unk>");
  } else if (which == TokenizerClass::kOther) {
    const auto text = [&](const char* key) {
      return optional_string(json, key, where).value_or("");
    };
    bpe.unk_token = optional_string(json, "unk_token", where);
    bpe.continuing_subword_prefix = text("continuing_subword_prefix");
    bpe.end_of_word_suffix = text("end_of_word_suffix");
    bpe.fuse_unk = optional_bool(json, "fuse_unk", false, where);
    bpe.byte_fallback = optional_bool(json, "byte_fallback", false, where);
    bpe.ignore_merges = optional_bool(json, "ignore_merges", false, where);
  }
  return std::make_unique<BpeModel>(std::move(bpe), where);
}

std::unique_ptr<TokenModel> read_wordpiece(const Json& json, const std::string& where, bool bert,
                                           const TokenizerFolder& folder) {
  WordPieceParts parts;
  parts.vocabulary = read_vocabulary(object_field(json, "vocab", where), where);
  if (bert) {
    parts.unk_token = unk_content(folder, "[UNK]");
  } else {
    parts.unk_token = string_field(json, "unk_token", where);
    parts.continuing_subword_prefix = string_field(json, "continuing_subword_prefix", where);
    const Json& limit = field(json, "max_input_chars_per_word", where);
    if (!limit.is_number_integer() || limit < 0 || limit > 1'000'000'000) {
      throw Error(ErrorKind::kData,
                  where + ": 'max_input_chars_per_word' must be a whole number from 0");
    }
    parts.max_input_chars_per_word = limit.get<int64_t>();
  }
  return std::make_unique<WordPieceModel>(std::move(parts), where);
}

std::vector<std::pair<std::string, double>> read_scores(const Json& json,
                                                        const std::string& where) {
  if (static_cast<int64_t>(json.size()) > kMaxVocabulary) {
    throw Error(ErrorKind::kData,
                format_text("{}: the vocabulary has more than {} tokens", where, kMaxVocabulary));
  }
  std::vector<std::pair<std::string, double>> vocabulary;
  vocabulary.reserve(json.size());
  for (const Json& item : json) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
      throw Error(ErrorKind::kData,
                  format_text("{}: token {} of the vocabulary must be [\"token\", score]", where,
                              vocabulary.size()));
    }
    vocabulary.emplace_back(item[0].get<std::string>(), item[1].get<double>());
  }
  return vocabulary;
}

std::unique_ptr<TokenModel> read_unigram(const Json& json, const std::string& where,
                                         TokenizerClass which, const TokenizerFolder& folder) {
  UnigramParts parts;
  parts.vocabulary = read_scores(array_field(json, "vocab", where), where);
  if (which == TokenizerClass::kXlmRoberta) {
    parts.unk_id = 3;
  } else if (which == TokenizerClass::kBigBird || which == TokenizerClass::kDebertaV2) {
    const bool big_bird = which == TokenizerClass::kBigBird;
    const std::pair<std::string, double> unk(unk_content(folder, big_bird ? "<unk>" : "[UNK]"),
                                             0.0);
    const auto found = std::find(parts.vocabulary.begin(), parts.vocabulary.end(), unk);
    parts.unk_id =
        found == parts.vocabulary.end() ? (big_bird ? 100 : 1) : found - parts.vocabulary.begin();
  } else {
    for (auto& [token, score] : parts.vocabulary) score = score_as_read(score);
    const auto unk = json.find("unk_id");
    if (unk != json.end() && !unk->is_null()) parts.unk_id = to_id(*unk, "'unk_id'", where);
    parts.byte_fallback = optional_bool(json, "byte_fallback", false, where);
  }
  return std::make_unique<UnigramModel>(std::move(parts), where);
}

}  // namespace

std::vector<std::pair<std::string, int32_t>> read_vocabulary(const nlohmann::ordered_json& json,
                                                             const std::string& where) {
  if (static_cast<int64_t>(json.size()) > kMaxVocabulary) {
    throw Error(ErrorKind::kData,
                format_text("{}: the vocabulary has more than {} tokens", where, kMaxVocabulary));
  }
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  vocabulary.reserve(json.size());
  for (const auto& [token, id] : json.items()) {
    if (token.size() > kMaxTokenBytes) {
      throw Error(ErrorKind::kData,
                  format_text("{}: a token is longer than {} bytes", where, kMaxTokenBytes));
    }
    vocabulary.emplace_back(token, to_id(id, "the token '" + token + "'", where));
  }
  return vocabulary;
}

std::vector<std::pair<std::string, std::string>> read_merges_txt(const std::string& text,
                                                                 const std::string& where) {
  std::vector<std::pair<std::string, std::string>> merges;
  int64_t number = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    if (line.ends_with('\r')) line.pop_back();
    start = end + 1;
    ++number;
    if (line.starts_with("#version")) continue;
    const std::string position = format_text("{}:{}", where, number);
    if (utf8::find_invalid(line) != std::string::npos) {
      throw Error(ErrorKind::kData, position + ": is not valid UTF-8");
    }
    merges.push_back(split_merge(line, position));
  }
  return merges;
}

std::vector<std::pair<std::string, int32_t>> read_vocab_txt(const std::string& text,
                                                            const std::string& where) {
  std::unordered_map<std::string, int32_t> ids;
  int32_t number = 0;
  for (size_t start = 0; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    const std::string position = format_text("{}:{}", where, number + 1);
    if (number >= kMaxVocabulary) {
      throw Error(ErrorKind::kData,
                  format_text("{}: a vocabulary has at most {} tokens", position, kMaxVocabulary));
    }
    if (utf8::find_invalid(line) != std::string::npos) {
      throw Error(ErrorKind::kData, position + ": is not valid UTF-8");
    }
    size_t size = 0;  // without trailing white space
    for (size_t offset = 0; offset < line.size();) {
      if (char_class(utf8::decode(line, offset)) != CharClass::kSpace) size = offset;
    }
    ids[std::string(line.substr(0, size))] = number;
  }
  return {ids.begin(), ids.end()};
}

std::string model_type(const nlohmann::ordered_json& model, const std::string& where) {
  if (const auto type = optional_string(model, "type", where)) return *type;
  if (model.contains("merges")) return "BPE";
  return field(model, "vocab", where).is_array() ? "Unigram" : "WordPiece";
}

ReadModel read_model(const nlohmann::ordered_json& model, const std::string& where,
                     TokenizerClass which, const TokenizerFolder& folder, bool byte_level) {
  const std::string type = model_type(model, where);
  ReadModel result;
  if (type == "BPE") {
    result.takes_bytes = byte_level;
    result.model = read_bpe(model, where, which, folder, byte_level);
  } else if (type == "WordPiece") {
    const bool bert = which == TokenizerClass::kBert || which == TokenizerClass::kMpnet;
    result.continuing_prefix =
        bert ? "##" : string_field(model, "continuing_subword_prefix", where);
    result.model = read_wordpiece(model, where, bert, folder);
  } else if (type == "Unigram") {
    result.unigram = true;
    result.model = read_unigram(model, where, which, folder);
  } else {
    throw unsupported(where, "the model '" + type + "'");
  }
  return result;
}

}  // namespace finetune::tokenizer
