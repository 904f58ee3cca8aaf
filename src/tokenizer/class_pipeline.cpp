// SPDX-License-Identifier: MIT
#include "tokenizer/class_pipeline.h"

#include <nlohmann/json.hpp>

#include "tokenizer/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr const char* kMetaspace = "\xE2\x96\x81";

Json optional_json(const std::optional<bool>& value) { return value ? Json(*value) : Json(); }

Json sequence(const char* key, Json items) {
  Json json = {{"type", "Sequence"}};
  json[key] = std::move(items);
  return json;
}

Json metaspace(const TokenizerFolder& folder) {
  return {{"type", "Metaspace"},
          {"replacement", kMetaspace},
          {"prepend_scheme", folder.add_prefix_space.value_or(true) ? "always" : "never"},
          {"split", true}};
}

Json byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

// Builds a TemplateProcessing piece by piece.
class Template {
 public:
  void special(const SpecialTokens::Token& token, int type) {
    pieces_.push_back({{"SpecialToken", {{"id", token.text}, {"type_id", type}}}});
    tokens_[token.text] = {{"id", token.text},
                           {"ids", Json::array({token.id})},
                           {"tokens", Json::array({token.text})}};
  }
  void text(const char* id, int type) {
    pieces_.push_back({{"Sequence", {{"id", id}, {"type_id", type}}}});
  }
  void end_single() { single_ = pieces_; }
  [[nodiscard]] Json json() const {
    return {{"type", "TemplateProcessing"},
            {"single", single_},
            {"pair", pieces_},
            {"special_tokens", tokens_}};
  }

 private:
  Json pieces_ = Json::array();
  Json single_ = Json::array();
  Json tokens_ = Json::object();
};

}  // namespace

TokenizerClass class_of(const TokenizerFolder& folder) {
  if (folder.class_name == "BertTokenizer") return TokenizerClass::kBert;
  if (folder.class_name == "RobertaTokenizer") return TokenizerClass::kRoberta;
  if (folder.class_name == "XLMRobertaTokenizer") return TokenizerClass::kXlmRoberta;
  if (folder.class_name == "BigBirdTokenizer") return TokenizerClass::kBigBird;
  return TokenizerClass::kOther;
}

nlohmann::ordered_json class_pipeline(TokenizerClass which, const TokenizerFolder& folder,
                                      const nlohmann::ordered_json& charsmap) {
  Json normalizer;
  Json pre_tokenizer;
  Json decoder;
  switch (which) {
    case TokenizerClass::kOther:
      break;
    case TokenizerClass::kBert:
      normalizer = {{"type", "BertNormalizer"},
                    {"clean_text", true},
                    {"handle_chinese_chars", folder.tokenize_chinese_chars.value_or(true)},
                    {"strip_accents", optional_json(folder.strip_accents)},
                    {"lowercase", folder.do_lower_case.value_or(true)}};
      pre_tokenizer = {{"type", "BertPreTokenizer"}};
      decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
      break;
    case TokenizerClass::kRoberta:
      pre_tokenizer = byte_level(folder.add_prefix_space.value_or(false));
      decoder = byte_level(true);
      break;
    case TokenizerClass::kXlmRoberta:
      normalizer = charsmap;
      pre_tokenizer = sequence("pretokenizers",
                               Json::array({Json{{"type", "WhitespaceSplit"}}, metaspace(folder)}));
      decoder = metaspace(folder);
      break;
    case TokenizerClass::kBigBird:
      normalizer = sequence(
          "normalizers",
          Json::array({Json{{"type", "Strip"}, {"strip_left", false}, {"strip_right", false}},
                       Json{{"type", "Replace"},
                            {"pattern", {{"Regex", " {2,}"}}},
                            {"content", kMetaspace}}}));
      pre_tokenizer = metaspace(folder);
      decoder = metaspace(folder);
      break;
  }
  return {{"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"decoder", std::move(decoder)}};
}

nlohmann::ordered_json class_post_processor(TokenizerClass which, const TokenizerFolder& folder,
                                            const SpecialTokens& special) {
  Template pieces;
  if (which == TokenizerClass::kXlmRoberta) {
    if (!special.bos || !special.eos) return nullptr;
    pieces.special(*special.bos, 0);
    pieces.text("A", 0);
    pieces.special(*special.eos, 0);
    pieces.end_single();
    pieces.special(*special.eos, 0);
    pieces.text("B", 0);
    pieces.special(*special.eos, 0);
    return pieces.json();
  }
  if (!special.cls || !special.sep) return nullptr;
  if (which == TokenizerClass::kRoberta) {
    return {{"type", "RobertaProcessing"},
            {"sep", Json::array({special.sep->text, special.sep->id})},
            {"cls", Json::array({special.cls->text, special.cls->id})},
            {"trim_offsets", folder.trim_offsets.value_or(true)},
            {"add_prefix_space", folder.add_prefix_space.value_or(false)}};
  }
  pieces.special(*special.cls, 0);
  pieces.text("A", 0);
  pieces.special(*special.sep, 0);
  pieces.end_single();
  pieces.text("B", 1);
  pieces.special(*special.sep, 1);
  return pieces.json();
}

}  // namespace finetune::tokenizer
