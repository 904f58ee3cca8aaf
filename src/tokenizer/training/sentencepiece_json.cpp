// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/model_files.h"
#include "finetune/tokenizer/train_sentencepiece.h"
#include "tokenizer/sentencepiece/sentencepiece_files.h"
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Summary = tokenizer::SentencePieceSummary;

constexpr const char* kMetaspace = "\xE2\x96\x81";

// A score below that of all other segmentations: SentencePiece never finds the piece of a byte in
// text.
constexpr double kNeverFound = -1e6;

// transformers' names of the special tokens, by their text.
constexpr std::array<std::pair<const char*, const char*>, 8> kRoles = {{{"<s>", "bos_token"},
                                                                        {"[CLS]", "cls_token"},
                                                                        {"</s>", "eos_token"},
                                                                        {"[MASK]", "mask_token"},
                                                                        {"<mask>", "mask_token"},
                                                                        {"<pad>", "pad_token"},
                                                                        {"[SEP]", "sep_token"},
                                                                        {"<unk>", "unk_token"}}};

// Appends without the linear search of ordered_json's operator[].
void put(Json& object, std::string key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
}

bool is_special(const Summary::Piece& piece) {
  return piece.type == Summary::kControl || piece.type == Summary::kUnknown;
}

std::optional<size_t> find(const Summary& summary, std::string_view text) {
  const auto found = std::find_if(summary.pieces.begin(), summary.pieces.end(),
                                  [&](const auto& piece) { return piece.text == text; });
  if (found == summary.pieces.end()) return std::nullopt;
  return static_cast<size_t>(found - summary.pieces.begin());
}

Json added_tokens(const Summary& summary) {
  Json added = Json::array();
  for (size_t id = 0; id < summary.pieces.size(); ++id) {
    if (!is_special(summary.pieces[id])) continue;
    added.push_back({{"id", id},
                     {"content", summary.pieces[id].text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  return added;
}

Json normalizer(const Summary& summary) {
  Json steps = Json::array();
  if (!summary.charsmap.empty()) steps.push_back(tokenizer::charsmap_json(summary.charsmap));
  steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
  if (summary.add_dummy_prefix) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kMetaspace}});
  }
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

// Returns a pattern that matches the longest of the texts.
std::string pattern_of(std::vector<std::string_view> texts) {
  std::stable_sort(texts.begin(), texts.end(), [](auto a, auto b) { return a.size() > b.size(); });
  std::string pattern;
  for (const std::string_view text : texts) {
    if (!pattern.empty()) pattern += '|';
    for (const char c : text) {
      if (std::string_view("\\()[]{}*+?^$|.").find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
  }
  return pattern;
}

// User-defined symbols are split here instead of being added tokens: SentencePiece puts the space
// in front of a text that begins with one, but added tokens are removed before that.
Json pre_tokenizer(const Summary& summary) {
  std::vector<std::string_view> symbols;
  for (const auto& piece : summary.pieces) {
    if (piece.type == Summary::kUserDefined) symbols.push_back(piece.text);
  }
  // If the space has no piece, it forms one unknown token with its neighbours.
  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", kMetaspace},
                          {"prepend_scheme", "never"},
                          {"split", find(summary, kMetaspace).has_value()}};
  if (symbols.empty()) return metaspace;
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern_of(std::move(symbols))}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, metaspace})}};
}

Json post_processor(const Summary& summary) {
  const auto cls = find(summary, "[CLS]");
  const auto sep = find(summary, "[SEP]");
  if (!cls || !sep) return nullptr;
  const auto special = [](const char* token, int type) {
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const auto token = [](const char* name, size_t id) {
    return Json{{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
  };
  Json single = Json::array({special("[CLS]", 0), text("A", 0), special("[SEP]", 0)});
  Json pair = single;
  pair.push_back(text("B", 1));
  pair.push_back(special("[SEP]", 1));
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", {{"[CLS]", token("[CLS]", *cls)}, {"[SEP]", token("[SEP]", *sep)}}}};
}

Json decoder(const Summary& summary) {
  if (!summary.byte_fallback) {
    return {{"type", "Metaspace"},
            {"replacement", kMetaspace},
            {"prepend_scheme", summary.add_dummy_prefix ? "always" : "never"},
            {"split", true}};
  }
  Json steps = Json::array(
      {Json{{"type", "Replace"}, {"pattern", {{"String", kMetaspace}}}, {"content", " "}},
       Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  if (summary.add_dummy_prefix) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

size_t unknown_id(const Summary& summary) {
  const auto found = std::find_if(summary.pieces.begin(), summary.pieces.end(),
                                  [](const auto& p) { return p.type == Summary::kUnknown; });
  return static_cast<size_t>(found - summary.pieces.begin());
}

Json unigram_model(const Summary& summary) {
  Json vocabulary = Json::array();
  for (const auto& piece : summary.pieces) {
    const double score = piece.type == Summary::kByte ? kNeverFound : double{piece.score};
    vocabulary.push_back(Json::array({piece.text, score}));
  }
  return {{"type", "Unigram"},
          {"unk_id", unknown_id(summary)},
          {"vocab", std::move(vocabulary)},
          {"byte_fallback", summary.byte_fallback}};
}

// Returns all splits of a piece into two others as merges: SentencePiece joins neighbours whose
// text is a piece, the best piece first.
Json merges_of(const Summary& summary) {
  std::unordered_map<std::string_view, size_t> ids;
  std::vector<size_t> ranked;
  for (size_t id = 0; id < summary.pieces.size(); ++id) {
    if (summary.pieces[id].type != Summary::kNormal) continue;
    ids.emplace(summary.pieces[id].text, id);
    ranked.push_back(id);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) {
    return summary.pieces[a].score > summary.pieces[b].score;
  });
  Json merges = Json::array();
  for (const size_t id : ranked) {
    const std::string_view text = summary.pieces[id].text;
    std::vector<std::pair<size_t, size_t>> ways;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut));
      const auto right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end()) ways.emplace_back(left->second, right->second);
    }
    std::sort(ways.begin(), ways.end());
    for (const auto& [left, right] : ways) {
      merges.push_back(Json::array({summary.pieces[left].text, summary.pieces[right].text}));
    }
  }
  return merges;
}

Json bpe_model(const Summary& summary) {
  Json vocabulary = Json::object();
  bool symbols = false;
  for (size_t id = 0; id < summary.pieces.size(); ++id) {
    put(vocabulary, std::string(summary.pieces[id].text), id);
    symbols = symbols || summary.pieces[id].type == Summary::kUserDefined;
  }
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", summary.pieces[unknown_id(summary)].text},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", true},
                {"byte_fallback", summary.byte_fallback},
                // Needed for symbols that no merges produce.
                {"ignore_merges", symbols}};
  put(model, "vocab", std::move(vocabulary));
  put(model, "merges", merges_of(summary));
  return model;
}

std::string tokenizer_json(const Summary& summary) {
  Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  put(json, "added_tokens", added_tokens(summary));
  put(json, "normalizer", normalizer(summary));
  put(json, "pre_tokenizer", pre_tokenizer(summary));
  put(json, "post_processor", post_processor(summary));
  put(json, "decoder", decoder(summary));
  put(json, "model",
      summary.model_type == Summary::kBpe ? bpe_model(summary) : unigram_model(summary));
  return json.dump(2);
}

std::string tokenizer_config(const Summary& summary, std::optional<int64_t> model_max_length) {
  nlohmann::json json = {{"backend", "tokenizers"},
                         {"model_input_names", {"input_ids", "token_type_ids", "attention_mask"}},
                         {"tokenizer_class", "PreTrainedTokenizerFast"}};
  nlohmann::json extra = nlohmann::json::array();
  for (const auto& piece : summary.pieces) {
    if (!is_special(piece)) continue;
    const auto role = std::find_if(kRoles.begin(), kRoles.end(),
                                   [&](const auto& item) { return item.first == piece.text; });
    if (role != kRoles.end() && !json.contains(role->second)) {
      json[role->second] = piece.text;
    } else {
      extra.push_back(piece.text);
    }
  }
  if (!extra.empty()) json["extra_special_tokens"] = std::move(extra);
  if (model_max_length) json["model_max_length"] = *model_max_length;
  return json.dump(2) + "\n";
}

// Returns the vocabulary as spm_train writes it: a piece and its score per line.
std::string vocabulary_file(const Summary& summary) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  for (const auto& piece : summary.pieces) text << piece.text << '\t' << piece.score << '\n';
  return text.str();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> make_sentencepiece_files(
    const std::string& model, std::optional<int64_t> model_max_length) {
  const Summary summary = tokenizer::check_sentencepiece_model(model, "the trained model");
  if (summary.model_type > Summary::kBpe) {
    throw Error(ErrorKind::kData, "the SentencePiece model is neither unigram nor bpe");
  }
  return {{"spiece.model", model},
          {"spiece.vocab", vocabulary_file(summary)},
          {kTokenizerFile, tokenizer_json(summary)},
          {kTokenizerConfigFile, tokenizer_config(summary, model_max_length)}};
}

}  // namespace finetune
