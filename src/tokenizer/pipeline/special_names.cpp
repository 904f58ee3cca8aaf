// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/special_names.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "tokenizer/pipeline/class_pipeline.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr std::array<const char*, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
// nullptr: the class has no such token.
using Texts = std::array<const char*, 7>;
constexpr Texts kRobertaTexts = {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"};
constexpr Texts kBertTexts = {nullptr, nullptr, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr Texts kGpt2Texts = {kEndOfText, kEndOfText, kEndOfText};
constexpr Texts kQwen2Texts = {nullptr, kEndOfText, kEndOfText, nullptr, kEndOfText};
constexpr Texts kLlamaTexts = {"<s>", "</s>", "<unk>"};
constexpr Texts kGemmaTexts = {"<bos>", "<eos>", "<unk>", nullptr, "<pad>", nullptr, "<mask>"};
constexpr Texts kGptNeoXTexts = {kEndOfText, kEndOfText, kEndOfText, nullptr, "<|padding|>"};
constexpr Texts kCohereTexts = {"<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>",
                                "<CLS>",       "<MASK_TOKEN>"};
constexpr Texts kMpnetTexts = {"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"};
constexpr Texts kDebertaTexts = {"[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"};
constexpr Texts kBigBirdTexts = {"<s>", "</s>", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"};

const Texts& texts_of(const TokenizerFolder& folder) {
  switch (class_of(folder)) {
    case TokenizerClass::kBert:
      return kBertTexts;
    case TokenizerClass::kBigBird:
      return kBigBirdTexts;
    case TokenizerClass::kGpt2:
      return kGpt2Texts;
    case TokenizerClass::kGptNeoX:
      return kGptNeoXTexts;
    case TokenizerClass::kCohere:
      return kCohereTexts;
    case TokenizerClass::kMpnet:
      return kMpnetTexts;
    case TokenizerClass::kQwen2:
    case TokenizerClass::kQwen35:
      return kQwen2Texts;
    case TokenizerClass::kLlama:
      return kLlamaTexts;
    case TokenizerClass::kGemma:
      return kGemmaTexts;
    case TokenizerClass::kDeberta:
    case TokenizerClass::kDebertaV2:
      return kDebertaTexts;
    case TokenizerClass::kOther:
    case TokenizerClass::kRoberta:
    case TokenizerClass::kXlmRoberta:
      break;
  }
  return kRobertaTexts;
}

// A special token is a string or an object with `content` and flags.
AddedToken to_added_token(const Json& json, const std::string& name, const std::string& where) {
  AddedToken token;
  token.special = true;
  if (json.is_string()) {
    token.content = json.get<std::string>();
  } else if (json.is_object()) {
    token.content = string_field(json, "content", where);
    token.single_word = optional_bool(json, "single_word", false, where);
    token.lstrip = optional_bool(json, "lstrip", false, where);
    token.rstrip = optional_bool(json, "rstrip", false, where);
    token.special = optional_bool(json, "special", true, where);
    token.normalized = optional_bool(json, "normalized", !token.special, where);
  } else {
    throw Error(ErrorKind::kData,
                where + ": '" + name + "' must be a string or an object with 'content'");
  }
  if (token.content.empty() || token.content.size() > kMaxTokenBytes) {
    throw Error(ErrorKind::kData, where + ": '" + name + "' is empty or too long");
  }
  return token;
}

void read_names(const Json& json, const std::string& where, TokenizerFolder& folder) {
  for (const char* name : kNames) {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) continue;
    AddedToken token = to_added_token(*found, name, where);
    token.special = true;
    const auto known = std::find_if(folder.named.begin(), folder.named.end(),
                                    [&](const auto& item) { return item.first == name; });
    if (known == folder.named.end()) {
      folder.named.emplace_back(name, std::move(token));
    }
  }
  for (const char* list : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto found = json.find(list);
    if (found == json.end() || !found->is_array()) continue;
    for (const Json& item : *found)
      folder.named.emplace_back("", to_added_token(item, list, where));
  }
}

void refuse_outside_analyser(const Json& json, const std::string& where,
                             const TokenizerFolder& folder) {
  const auto type = optional_string(json, "word_tokenizer_type", where);
  const bool japanese = folder.class_name.starts_with("BertJapanese");
  if (!japanese && (!type || *type == "basic")) return;
  const std::string analyser = !type || *type == "mecab" ? "MeCab" : *type;
  throw Error(ErrorKind::kData, where + ": this tokenizer needs the outside analyser " + analyser +
                                    ", which is not supported; use a model with a byte-level BPE "
                                    "or SentencePiece tokenizer");
}

std::string without_fast(std::string name) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

// Returns whether the side `key` is the left one.
bool read_side(const Json& json, const char* key, const std::string& where) {
  const std::string side = optional_string(json, key, where).value_or("right");
  if (side != "left" && side != "right") {
    throw Error(ErrorKind::kData, where + ": '" + key + "' must be \"left\" or \"right\"");
  }
  return side == "left";
}

std::optional<bool> read_token_types(const Json& json) {
  const auto names = json.find("model_input_names");
  if (names == json.end() || !names->is_array()) return std::nullopt;
  return std::find(names->begin(), names->end(), "token_type_ids") != names->end();
}

void read_config(const Json& json, const std::string& where, TokenizerFolder& folder,
                 std::optional<bool>& token_types) {
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must be a JSON object");
  folder.class_name = without_fast(optional_string(json, "tokenizer_class", where).value_or(""));
  refuse_outside_analyser(json, where, folder);
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_boolean()) return std::nullopt;
    return found->get<bool>();
  };
  folder.add_prefix_space = flag("add_prefix_space");
  folder.trim_offsets = flag("trim_offsets");
  folder.do_lower_case = flag("do_lower_case");
  folder.strip_accents = flag("strip_accents");
  folder.tokenize_chinese_chars = flag("tokenize_chinese_chars");
  folder.add_bos_token = flag("add_bos_token");
  folder.add_eos_token = flag("add_eos_token");
  folder.legacy = flag("legacy");
  folder.split_by_punct = flag("split_by_punct");
  for (const char* name : kNames) {
    if (json.contains(name) && json[name].is_null()) folder.unset.emplace_back(name);
  }
  folder.sides_given = json.contains("padding_side") || json.contains("truncation_side");
  folder.sides.pad_left = read_side(json, "padding_side", where);
  folder.sides.truncate_left = read_side(json, "truncation_side", where);
  token_types = read_token_types(json);
  read_names(json, where, folder);
  const auto decoder = json.find("added_tokens_decoder");
  if (decoder == json.end() || !decoder->is_object()) return;
  for (const auto& [key, value] : decoder->items()) {
    AddedToken token = to_added_token(value, "added_tokens_decoder", where);
    const Json id =
        key.size() <= 8 && !key.empty() &&
                std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; })
            ? Json(std::stoi(key))
            : Json();
    token.id = to_id(id, "the added token '" + token.content + "'", where);
    folder.added_tokens.push_back(std::move(token));
  }
  std::stable_sort(folder.added_tokens.begin(), folder.added_tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

// Returns whether auto_map names code for AutoTokenizer.
bool has_custom_code(const Json& json) {
  const auto map = json.find("auto_map");
  if (map == json.end()) return false;
  if (map->is_array()) return true;
  const auto code = map->is_object() ? map->find("AutoTokenizer") : map->end();
  return map->is_object() && code != map->end() && !code->is_null();
}

// Sets the class that transformers uses for the folder.
void resolve(TokenizerFolder& folder, ClassSources sources) {
  const std::string file = join_path(folder.path, kTokenizerFile);
  if (sources.named == "LlamaTokenizer" && FileSystem::local().exists(file)) {
    const std::string text = FileSystem::local().read_all(file, uint64_t{512} << 20);
    sources.byte_level = text.find("\"ByteLevel\"") != std::string::npos;
  }
  if (needs_custom_code(sources)) {
    throw Error(ErrorKind::kData,
                join_path(folder.path, kTokenizerConfigFile) +
                    ": 'auto_map' names Python code for this tokenizer, which is not supported; if "
                    "tokenizer.json describes it completely, remove 'auto_map'");
  }
  folder.class_name = resolve_class(sources);
  sources.named = "TokenizersBackend";
  folder.fixed_class = resolve_class(sources) == folder.class_name;
}

}  // namespace

TokenizerFolder read_tokenizer_folder(const std::string& path) {
  TokenizerFolder folder;
  folder.path = path;
  std::optional<bool> token_types;
  ClassSources sources;
  FileSystem& files = FileSystem::local();
  constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  const auto read = [&](const char* name) -> std::optional<std::string> {
    const std::string file = join_path(path, name);
    if (!files.exists(file)) return std::nullopt;
    return files.read_all(file, kMaxBytes);
  };
  if (const auto text = read(kTokenizerConfigFile)) {
    const std::string where = join_path(path, kTokenizerConfigFile);
    const Json json = parse_json(*text, where, ErrorKind::kData, {.allow_nan = true});
    read_config(json, where, folder, token_types);
    sources.custom_code = has_custom_code(json);
    folder.files.emplace_back(kTokenizerConfigFile, *text);
  }
  if (const auto text = read(kSpecialTokensFile)) {
    const std::string where = join_path(path, kSpecialTokensFile);
    const Json json = parse_json(*text, where);
    if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must be a JSON object");
    read_names(json, where, folder);
    folder.files.emplace_back(kSpecialTokensFile, *text);
  }
  if (const auto text = read(kConfigFile)) {
    const std::string where = join_path(path, kConfigFile);
    const Json json = parse_json(*text, where, ErrorKind::kData, {.allow_nan = true});
    sources.model_type = optional_string(json, "model_type", where).value_or("");
    if (folder.class_name.empty()) {
      folder.class_name =
          without_fast(optional_string(json, "tokenizer_class", where).value_or(""));
    }
  }
  sources.named = folder.class_name;
  resolve(folder, std::move(sources));
  folder.token_types = token_types.value_or(has_token_types(folder.class_name));
  return folder;
}

void add_class_names(TokenizerFolder& folder) {
  const Texts& texts = texts_of(folder);
  const bool big_bird = &texts == &kBigBirdTexts;
  const bool keeps_null = &texts != &kRobertaTexts && &texts != &kBertTexts && !big_bird;
  const auto unset = [&](const char* name) {
    return keeps_null &&
           std::find(folder.unset.begin(), folder.unset.end(), name) != folder.unset.end();
  };
  std::vector<std::pair<std::string, AddedToken>> named;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const auto known = std::find_if(folder.named.begin(), folder.named.end(),
                                    [&](const auto& item) { return item.first == kNames[i]; });
    if (known != folder.named.end()) {
      named.push_back(*known);
    } else if (texts[i] != nullptr && !unset(kNames[i])) {
      AddedToken token;
      token.content = texts[i];
      token.special = true;
      token.lstrip = big_bird && token.content == "[MASK]";
      named.emplace_back(kNames[i], token);
    }
  }
  for (const auto& item : folder.named) {
    if (item.first.empty()) named.push_back(item);
  }
  folder.named = std::move(named);
}

bool set_special_token(SpecialTokens& tokens, const std::string& name,
                       const SpecialTokens::Token& token) {
  if (name == "bos_token") {
    tokens.bos = token;
  } else if (name == "eos_token") {
    tokens.eos = token;
  } else if (name == "unk_token") {
    tokens.unk = token;
  } else if (name == "sep_token") {
    tokens.sep = token;
  } else if (name == "pad_token") {
    tokens.pad = token;
  } else if (name == "cls_token") {
    tokens.cls = token;
  } else if (name == "mask_token") {
    tokens.mask = token;
  } else {
    return false;
  }
  return true;
}

}  // namespace finetune::tokenizer
