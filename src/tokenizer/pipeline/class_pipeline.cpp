// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/class_pipeline.h"

#include <nlohmann/json.hpp>

#include "finetune/tokenizer/known_patterns.h"
#include "tokenizer/unicode/json_fields.h"

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

Json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// Converts "\xE2\x96\x81" and byte tokens back to text; `strips` removes the leading space.
Json spaced_decoder(bool strips) {
  Json steps = Json::array(
      {replace(kMetaspace, " "), Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  if (strips) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return sequence("decoders", std::move(steps));
}

Json llama_metaspace(const TokenizerFolder& folder) {
  const char* scheme = !folder.add_prefix_space.value_or(true) ? "never"
                       : folder.legacy.value_or(false)         ? "always"
                                                               : "first";
  return {{"type", "Metaspace"},
          {"replacement", kMetaspace},
          {"prepend_scheme", scheme},
          {"split", false}};
}

Json qwen_pre_tokenizer(const TokenizerFolder& folder, std::string_view pattern) {
  Json bytes = byte_level(folder.add_prefix_space.value_or(false));
  bytes["use_regex"] = false;
  return sequence("pretokenizers", Json::array({Json{{"type", "Split"},
                                                     {"pattern", {{"Regex", pattern}}},
                                                     {"behavior", "Isolated"},
                                                     {"invert", false}},
                                                std::move(bytes)}));
}

Json deberta_normalizer(const TokenizerFolder& folder) {
  Json steps = Json::array();
  if (folder.do_lower_case.value_or(false)) steps.push_back({{"type", "Lowercase"}});
  steps.push_back(
      {{"type", "Replace"}, {"pattern", {{"Regex", R"(\s{2,}|[\n\r\t])"}}}, {"content", " "}});
  steps.push_back({{"type", "NFC"}});
  steps.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
  return sequence("normalizers", std::move(steps));
}

Json deberta_metaspace(const TokenizerFolder& folder) {
  return {{"type", "Metaspace"},
          {"replacement", kMetaspace},
          {"prepend_scheme", folder.add_prefix_space.value_or(true) ? "always" : "first"},
          {"split", true}};
}

Json deberta_pre_tokenizer(const TokenizerFolder& folder) {
  Json steps = Json::array();
  if (folder.split_by_punct.value_or(false)) {
    steps.push_back({{"type", "Punctuation"}, {"behavior", "Isolated"}});
  }
  steps.push_back(deberta_metaspace(folder));
  return sequence("pretokenizers", std::move(steps));
}

// Builds a TemplateProcessing from pieces.
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

Json xlm_roberta_template(const SpecialTokens& special) {
  if (!special.bos || !special.eos) return nullptr;
  Template pieces;
  pieces.special(*special.bos, 0);
  pieces.text("A", 0);
  pieces.special(*special.eos, 0);
  pieces.end_single();
  pieces.special(*special.eos, 0);
  pieces.text("B", 0);
  pieces.special(*special.eos, 0);
  return pieces.json();
}

Json bert_normalizer(const TokenizerFolder& folder) {
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", folder.tokenize_chinese_chars.value_or(true)},
          {"strip_accents", optional_json(folder.strip_accents)},
          {"lowercase", folder.do_lower_case.value_or(true)}};
}

Json gemma_pre_tokenizer() {
  return {{"type", "Split"},
          {"pattern", {{"String", " "}}},
          {"behavior", "MergedWithPrevious"},
          {"invert", false}};
}

Json big_bird_normalizer() {
  return sequence(
      "normalizers",
      Json::array(
          {Json{{"type", "Strip"}, {"strip_left", false}, {"strip_right", false}},
           Json{{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", kMetaspace}}}));
}

// The splits of a text before the byte-level or metaspace step of a class that has two.
Json two_steps(Json first, Json second) {
  return sequence("pretokenizers", Json::array({std::move(first), std::move(second)}));
}

}  // namespace

TokenizerClass class_of(const TokenizerFolder& folder) { return class_named(folder.class_name); }

nlohmann::ordered_json class_pipeline(TokenizerClass which, const TokenizerFolder& folder,
                                      const nlohmann::ordered_json& charsmap) {
  Json normalizer, pre_tokenizer, decoder;
  switch (which) {
    case TokenizerClass::kOther:
      break;
    case TokenizerClass::kBert:
    case TokenizerClass::kMpnet:
      normalizer = bert_normalizer(folder);
      pre_tokenizer = {{"type", "BertPreTokenizer"}};
      decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
      break;
    case TokenizerClass::kGptNeoX:
      normalizer = {{"type", "NFC"}};
      [[fallthrough]];
    case TokenizerClass::kRoberta:
    case TokenizerClass::kGpt2:
    case TokenizerClass::kDeberta:
      pre_tokenizer = byte_level(folder.add_prefix_space.value_or(false));
      decoder = byte_level(true);
      break;
    case TokenizerClass::kCohere:
      normalizer = {{"type", "NFC"}};
      pre_tokenizer = two_steps({{"type", "Digits"}, {"individual_digits", true}},
                                byte_level(folder.add_prefix_space.value_or(false)));
      decoder = byte_level(true);
      break;
    case TokenizerClass::kXlmRoberta:
      normalizer = charsmap;
      pre_tokenizer = two_steps({{"type", "WhitespaceSplit"}}, metaspace(folder));
      decoder = metaspace(folder);
      break;
    case TokenizerClass::kBigBird:
      normalizer = big_bird_normalizer();
      pre_tokenizer = metaspace(folder);
      decoder = metaspace(folder);
      break;
    case TokenizerClass::kQwen2:
    case TokenizerClass::kQwen35:
      normalizer = {{"type", "NFC"}};
      pre_tokenizer = qwen_pre_tokenizer(
          folder, which == TokenizerClass::kQwen2 ? kQwen2Pattern : kQwen35Pattern);
      decoder = byte_level(true);
      break;
    case TokenizerClass::kLlama:
      pre_tokenizer = llama_metaspace(folder);
      decoder = spaced_decoder(folder.add_prefix_space.value_or(true));
      break;
    case TokenizerClass::kGemma:
      normalizer = replace(" ", kMetaspace);
      pre_tokenizer = gemma_pre_tokenizer();
      decoder = spaced_decoder(false);
      break;
    case TokenizerClass::kDebertaV2:
      normalizer = deberta_normalizer(folder);
      pre_tokenizer = deberta_pre_tokenizer(folder);
      decoder = deberta_metaspace(folder);
      break;
  }
  return {{"normalizer", std::move(normalizer)},
          {"pre_tokenizer", std::move(pre_tokenizer)},
          {"decoder", std::move(decoder)}};
}

nlohmann::ordered_json class_post_processor(TokenizerClass which, const TokenizerFolder& folder,
                                            const SpecialTokens& special,
                                            const nlohmann::ordered_json& given) {
  Template pieces;
  const bool language_model = which == TokenizerClass::kGpt2 || which == TokenizerClass::kGptNeoX ||
                              which == TokenizerClass::kCohere || which == TokenizerClass::kQwen2 ||
                              which == TokenizerClass::kQwen35 || which == TokenizerClass::kLlama ||
                              which == TokenizerClass::kGemma;
  if (which == TokenizerClass::kOther || language_model) {
    const bool says = folder.add_bos_token || folder.add_eos_token;
    // GPTNeoXTokenizer replaces the file's in any case.
    const bool keeps = which != TokenizerClass::kGptNeoX && !given.is_null();
    if (!says && (keeps || !language_model)) return given;
    const bool bos = special.bos && folder.add_bos_token.value_or(false);
    const bool eos = special.eos && folder.add_eos_token.value_or(false);
    const auto add = [&](const char* text, int type) {
      if (bos) pieces.special(*special.bos, type);
      pieces.text(text, type);
      if (eos) pieces.special(*special.eos, type);
    };
    add("A", 0);
    pieces.end_single();
    add("B", 1);
    return pieces.json();
  }
  if (which == TokenizerClass::kXlmRoberta) return xlm_roberta_template(special);
  if (which == TokenizerClass::kMpnet) {
    // A token that tokenizer_config.json sets to null leaves MPNetTokenizer's default id.
    const SpecialTokens::Token sep = special.sep.value_or(SpecialTokens::Token{"None", 2});
    const SpecialTokens::Token cls = special.cls.value_or(SpecialTokens::Token{"None", 0});
    return {{"type", "RobertaProcessing"},
            {"sep", Json::array({sep.text, sep.id})},
            {"cls", Json::array({cls.text, cls.id})},
            {"trim_offsets", true},
            {"add_prefix_space", false}};
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
  const int second = which == TokenizerClass::kDeberta ? 0 : 1;
  if (which == TokenizerClass::kDeberta) pieces.special(*special.sep, 0);
  pieces.text("B", second);
  pieces.special(*special.sep, second);
  return pieces.json();
}

}  // namespace finetune::tokenizer
