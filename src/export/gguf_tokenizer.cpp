// SPDX-License-Identifier: MIT
#include "export/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/tokenizer/known_patterns.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";     // "▁"
constexpr std::string_view kByteLevelSpace = "\xC4\xA0";    // "Ġ"
constexpr std::string_view kDeepSeekMark = "\xEF\xBD\x9C";  // "｜"
constexpr float kNoScore = -1000.0F;
constexpr uint64_t kLongestFile = uint64_t{512} << 20;
constexpr uint64_t kLongestTemplate = uint64_t{16} << 20;

// llama_token_type.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Patterns of tokenizer.json's Split and the name of llama.cpp's pre-tokenizer that has them.
// `ignore_merges`: what that one does with words that are tokens.
struct KnownPattern {
  std::string_view regex;
  const char* name;
  bool ignore_merges;
};

constexpr std::array<KnownPattern, 6> kKnownPatterns = {
    {{tokenizer::kLlama3Pattern, "llama-bpe", true},
     {tokenizer::kLlama3Pattern, "dbrx", false},
     {tokenizer::kQwen2Pattern, "qwen2", false},
     {tokenizer::kQwen35Pattern, "qwen35", false},
     {tokenizer::kO200kPattern, "gpt-4o", false},
     {tokenizer::kTekkenPattern, "tekken", true}}};

// Null where it is not there.
const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

class TokenizerWriter {
 public:
  TokenizerWriter(GgufMetadata& metadata, const MergedModel& model)
      : metadata_(metadata), model_(model) {
    FileSystem& files = FileSystem::local();
    for (const std::string& folder : {model.folder, model.base}) {
      path_ = join_path(folder, kTokenizerFile);
      folder_ = folder;
      if (files.exists(path_)) break;
    }
    if (!files.exists(path_)) {
      throw Error(ErrorKind::kData, "'" + model.folder +
                                        "' has no tokenizer.json, from which GGUF's tokenizer is "
                                        "made; save the tokenizer with transformers");
    }
    json_ = read_json_file(path_, ErrorKind::kData, {.max_bytes = kLongestFile});
    const std::string config = join_path(folder_, kTokenizerConfigFile);
    if (files.exists(config)) config_ = read_json_file(config, ErrorKind::kData);
  }

  void run() {
    const Json& bpe = member(json_, "model");
    if (text_of(member(bpe, "type")) == "WordPiece") return add_word_piece(bpe);
    if (text_of(member(bpe, "type")) != "BPE") {
      refuse("is a " + shortened(text_of(member(bpe, "type")), 40) + " tokenizer");
    }
    const bool has_byte_fallback = member(bpe, "byte_fallback") == true;
    if (!member(bpe, "vocab").is_object() || member(bpe, "vocab").empty() ||
        !member(bpe, "merges").is_array()) {
      refuse("has no vocab or no merges");
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_of(member(bpe, name)).empty()) refuse(std::string("has a ") + name);
    }
    if (has_byte_fallback) check_sentence_piece();
    read_tokens(bpe, has_byte_fallback);
    set("model", std::string(has_byte_fallback ? "llama" : "gpt2"));
    set("pre", has_byte_fallback ? std::string("default") : pre_tokenizer(bpe));
    set("tokens", tokens_);
    if (has_byte_fallback) set("scores", scores(bpe));
    set("token_type", types_);
    if (!has_byte_fallback) set("merges", merges(bpe));
    add_special_tokens();
    if (has_byte_fallback) set("add_space_prefix", has_space_prefix());
    add_chat_template();
  }

 private:
  // Words begin with "▁" and not their parts with "##". llama.cpp's tokenizer is that of an uncased
  // BERT.
  void add_word_piece(const Json& model) {
    const std::vector<Json> steps = normalizers();
    const bool is_bert = steps.size() == 1 && text_of(member(steps[0], "type")) == "BertNormalizer";
    if (!is_bert || member(steps[0], "lowercase") != true ||
        member(steps[0], "strip_accents") == false ||
        member(steps[0], "handle_chinese_chars") == false) {
      refuse("has another normalizer than that of an uncased BERT");
    }
    const std::vector<Json> splits = pre_tokenizers();
    if (splits.size() != 1 || text_of(member(splits[0], "type")) != "BertPreTokenizer") {
      refuse("has another pre-tokenizer than BERT's");
    }
    if (text_of(member(model, "continuing_subword_prefix")) != "##") {
      refuse("has word parts that do not begin with ##");
    }
    read_tokens(model, false);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] == static_cast<int32_t>(TokenType::kControl)) continue;
      std::string& token = tokens_[i];
      token = token.starts_with("##") ? token.substr(2) : std::string(kSpaceMark) + token;
    }
    set("model", std::string("bert"));
    set("pre", std::string("bert-bge"));
    set("tokens", tokens_);
    set("token_type", types_);
    constexpr std::array<std::pair<const char*, const char*>, 6> kNames = {
        {{"cls", "bos_token_id"},
         {"sep", "eos_token_id"},
         {"unk", "unknown_token_id"},
         {"sep", "seperator_token_id"},
         {"pad", "padding_token_id"},
         {"mask", "mask_token_id"}}};
    for (const auto& [name, key] : kNames) {
      if (const auto id = special_id(name)) set(key, static_cast<uint32_t>(*id));
    }
    set("add_bos_token", true);
    set("normalizer.lowercase", true);
  }

  void set(const std::string& name, GgufMetadata::Value value) {
    metadata_.set("tokenizer.ggml." + name, std::move(value));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        ErrorKind::kData,
        "'" + path_ + "' " + what + ", which GGUF's readers do not know; export a folder instead");
  }

  // Whether a token that is not marked as special is one nevertheless, as the converter judges.
  static bool looks_special(const std::string& token) {
    const std::string begin = "<" + std::string(kDeepSeekMark);
    const std::string end = std::string(kDeepSeekMark) + ">";
    return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" ||
           (token.starts_with("<|") && token.ends_with("|>")) ||
           (token.starts_with(begin) && token.ends_with(end)) ||
           (token.starts_with("<unused") && token.ends_with(">"));
  }

  void read_tokens(const Json& bpe, bool has_byte_fallback) {
    const auto size = static_cast<size_t>(model_.config.vocab_size);
    tokens_.resize(size);
    types_.assign(size, static_cast<int32_t>(TokenType::kUnused));
    for (size_t i = 0; i < size; ++i) tokens_[i] = "[PAD" + std::to_string(i) + "]";
    const auto put = [&](const Json& id, const std::string& token, TokenType type) {
      if (!id.is_number_integer() || id < 0 || id >= model_.config.vocab_size) {
        throw Error(ErrorKind::kData,
                    format_text("'{}': the token '{}' is outside the model's vocabulary of {}",
                                path_, shortened(token, 40), model_.config.vocab_size));
      }
      const auto at = id.get<size_t>();
      tokens_[at] = token;
      types_[at] = static_cast<int32_t>(type);
    };
    const Json& vocabulary = member(bpe, "vocab");
    for (const auto& [token, id] : vocabulary.items()) {
      const bool is_byte = has_byte_fallback && token.size() == 6 && token.starts_with("<0x") &&
                           token.ends_with(">");
      put(id, token, is_byte ? TokenType::kByte : TokenType::kNormal);
    }
    const std::string unknown = text_of(member(bpe, "unk_token"));
    const Json& added = member(json_, "added_tokens");
    for (const Json& one : added.is_array() ? added : Json::array()) {
      std::string token = text_of(member(one, "content"));
      added_[token] = member(one, "id");
      const bool is_special = member(one, "special") == true || looks_special(token);
      if (!is_special) replace_marks(token);
      put(member(one, "id"), token, is_special ? TokenType::kControl : TokenType::kUserDefined);
    }
    if (has_byte_fallback && vocabulary.contains(unknown)) {
      put(vocabulary[unknown], unknown, TokenType::kUnknown);
    }
  }

  static void replace_marks(std::string& token) {
    for (size_t at; (at = token.find(kSpaceMark)) != std::string::npos;) {
      token.replace(at, kSpaceMark.size(), " ");
    }
  }

  [[nodiscard]] static std::pair<std::string, std::string> pair_of(const Json& merge) {
    if (merge.is_array() && merge.size() == 2) return {text_of(merge[0]), text_of(merge[1])};
    const std::string text = text_of(merge);
    const size_t space = text.find(' ');
    if (space == std::string::npos) return {};
    return {text.substr(0, space), text.substr(space + 1)};
  }

  [[nodiscard]] static std::vector<std::string> merges(const Json& bpe) {
    std::vector<std::string> result;
    const Json& list = member(bpe, "merges");
    for (const Json& merge : list) {
      auto [left, right] = pair_of(merge);
      for (std::string* part : {&left, &right}) {
        for (size_t at; (at = part->find(' ')) != std::string::npos;) {
          part->replace(at, 1, kByteLevelSpace);
        }
      }
      result.push_back(left + " " + right);
    }
    return result;
  }

  // llama.cpp merges the pair whose token has the highest score: the one that is merged first.
  [[nodiscard]] std::vector<float> scores(const Json& bpe) const {
    std::map<std::string, float, std::less<>> ranks;
    const Json& list = member(bpe, "merges");
    for (const Json& merge : list) {
      const auto [left, right] = pair_of(merge);
      ranks.emplace(left + right, -static_cast<float>(ranks.size()));
    }
    std::vector<float> result;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const auto found = ranks.find(tokens_[i]);
      const bool is_normal = types_[i] == static_cast<int32_t>(TokenType::kNormal);
      result.push_back(found != ranks.end() ? found->second : is_normal ? 0.0F : kNoScore);
    }
    return result;
  }

  // Returns llama.cpp's name of the pre-tokenizer.
  [[nodiscard]] std::string pre_tokenizer(const Json& bpe) const {
    const bool ignores_merges = member(bpe, "ignore_merges") == true;
    std::vector<Json> steps = pre_tokenizers();
    check_normalizer();
    if (steps.empty() || text_of(member(steps.back(), "type")) != "ByteLevel") {
      refuse("has a pre-tokenizer that does not end with ByteLevel");
    }
    if (member(steps.back(), "add_prefix_space") == true) refuse("adds a space before a text");
    const bool has_pattern = member(steps.back(), "use_regex") != false;
    steps.pop_back();
    if (has_pattern && steps.empty() && !ignores_merges) return "gpt-2";
    if (has_pattern && steps.size() == 1 && !ignores_merges &&
        text_of(member(steps[0], "type")) == "Digits" &&
        member(steps[0], "individual_digits") == true) {
      return "smollm";
    }
    if (!has_pattern && steps.size() == 1 && text_of(member(steps[0], "type")) == "Split" &&
        text_of(member(steps[0], "behavior")) == "Isolated" && member(steps[0], "invert") != true) {
      const std::string regex = text_of(member(member(steps[0], "pattern"), "Regex"));
      for (const KnownPattern& known : kKnownPatterns) {
        if (known.regex == regex && known.ignore_merges == ignores_merges) return known.name;
      }
    }
    refuse("has a pre-tokenizer");
  }

  // The steps of a component of tokenizer.json, whose Sequence has them under `list`.
  [[nodiscard]] std::vector<Json> steps_of(const char* component, const char* list) const {
    std::vector<Json> steps;
    add_steps(member(json_, component), list, steps);
    return steps;
  }
  static void add_steps(const Json& step, const char* list, std::vector<Json>& steps) {
    if (step.is_null()) return;
    const Json& inner = member(step, list);
    if (text_of(member(step, "type")) != "Sequence" || !inner.is_array()) {
      return steps.push_back(step);
    }
    for (const Json& one : inner) add_steps(one, list, steps);
  }
  [[nodiscard]] std::vector<Json> normalizers() const {
    return steps_of("normalizer", "normalizers");
  }
  [[nodiscard]] std::vector<Json> pre_tokenizers() const {
    return steps_of("pre_tokenizer", "pretokenizers");
  }

  // llama.cpp has no normalizer for these; NFC changes only text that is spelt in another form.
  void check_normalizer() const {
    for (const Json& one : normalizers()) {
      const std::string type = text_of(member(one, "type"));
      if (type != "NFC") refuse("has the normalizer " + shortened(type, 40));
    }
  }

  // Of SentencePiece's: spaces become "▁", a text may begin with one, and nothing else changes.
  void check_sentence_piece() const {
    bool marks_spaces = false;
    for (const Json& one : normalizers()) {
      const std::string type = text_of(member(one, "type"));
      const bool is_replacement = type == "Replace" &&
                                  member(member(one, "pattern"), "String") == " " &&
                                  text_of(member(one, "content")) == kSpaceMark;
      const bool is_prefix = type == "Prepend" && text_of(member(one, "prepend")) == kSpaceMark;
      marks_spaces = marks_spaces || is_replacement;
      if (!is_replacement && !is_prefix) {
        refuse("has the normalizer " + shortened(type, 40));
      }
    }
    for (const Json& step : pre_tokenizers()) {
      const std::string type = text_of(member(step, "type"));
      const bool is_metaspace =
          type == "Metaspace" && text_of(member(step, "replacement")) == kSpaceMark;
      marks_spaces = marks_spaces || is_metaspace;
      // Gemma's splits at spaces, which are marks by then: nowhere.
      const bool is_empty = type == "Split" && member(member(step, "pattern"), "String") == " ";
      if (!is_metaspace && !is_empty) refuse("has the pre-tokenizer " + shortened(type, 40));
    }
    if (!marks_spaces) refuse("leaves spaces as they are");
  }

  // Whether a text gets a space in front: Llama 2's Prepend, or Metaspace.
  [[nodiscard]] bool has_space_prefix() const {
    for (const Json& one : normalizers()) {
      if (text_of(member(one, "type")) == "Prepend") return true;
    }
    return std::ranges::any_of(pre_tokenizers(), [](const Json& step) {
      return text_of(member(step, "type")) == "Metaspace" &&
             text_of(member(step, "prepend_scheme")) != "never";
    });
  }

  // The id of a token that tokenizer_config.json names, or config.json has the id of.
  [[nodiscard]] std::optional<int64_t> special_id(const char* name) const {
    const Json& token = member(config_, (std::string(name) + "_token").c_str());
    const std::string text = text_of(token.is_object() ? member(token, "content") : token);
    if (const auto found = added_.find(text); found != added_.end()) {
      if (found->second.is_number_integer()) return found->second.get<int64_t>();
    }
    const std::string_view which = name;
    if (which == "bos") return model_.config.bos_token_id;
    if (which == "eos") return model_.config.eos_token_id;
    if (which == "pad") return model_.config.decoder.pad_token_id;
    return std::nullopt;
  }

  void add_special_tokens() {
    constexpr std::array<std::pair<const char*, const char*>, 4> kNames = {
        {{"bos", "bos_token_id"},
         {"eos", "eos_token_id"},
         {"unk", "unknown_token_id"},
         {"pad", "padding_token_id"}}};
    const auto is_id = [&](int64_t id) { return id >= 0 && id < model_.config.vocab_size; };
    std::optional<int64_t> eos;
    for (const auto& [name, key] : kNames) {
      const std::optional<int64_t> id = special_id(name);
      if (!id || !is_id(*id)) continue;
      set(key, static_cast<uint32_t>(*id));
      if (std::string_view(name) == "eos") eos = id;
    }
    // The other token that ends an answer.
    for (const int64_t id : end_token_ids(model_)) {
      if (id != eos && is_id(id)) set("eot_token_id", static_cast<uint32_t>(id));
    }
    set("add_bos_token", adds("bos"));
    set("add_eos_token", adds("eos"));
  }

  // Whether encoding a text adds the token: as the post-processor does, or as the configuration of
  // the tokenizer says.
  [[nodiscard]] bool adds(const char* name) const {
    const Json& flag = member(config_, (std::string("add_") + name + "_token").c_str());
    if (flag.is_boolean()) return flag.get<bool>();
    const bool is_first = std::string_view(name) == "bos";
    const std::optional<int64_t> id = special_id(name);
    for (const Json& one : steps_of("post_processor", "processors")) {
      if (text_of(member(one, "type")) == "RobertaProcessing") return true;
      if (text_of(member(one, "type")) != "TemplateProcessing") continue;
      const Json& single = member(one, "single");
      if (!single.is_array() || single.size() < 2) continue;
      const Json& piece = is_first ? single.front() : single.back();
      const auto found = added_.find(text_of(member(member(piece, "SpecialToken"), "id")));
      if (found != added_.end() && id && found->second == *id) return true;
    }
    return false;
  }

  // That of the tokenizer's folder, as in a merged folder.
  void add_chat_template() {
    FileSystem& files = FileSystem::local();
    const std::string path = join_path(folder_, kChatTemplateFile);
    if (files.exists(path)) {
      metadata_.set("tokenizer.chat_template", files.read_all(path, kLongestTemplate));
      return add_more_templates(join_path(folder_, kMoreChatTemplates));
    }
    const Json& value = member(config_, "chat_template");
    if (value.is_string()) metadata_.set("tokenizer.chat_template", value.get<std::string>());
    std::vector<std::string> names;
    for (const Json& one : value.is_array() ? value : Json::array()) {
      const std::string name = text_of(member(one, "name"));
      const std::string text = text_of(member(one, "template"));
      if (name == "default") {
        metadata_.set("tokenizer.chat_template", text);
      } else if (!name.empty()) {
        metadata_.set("tokenizer.chat_template." + name, text);
        names.push_back(name);
      }
    }
    if (!names.empty()) metadata_.set("tokenizer.chat_templates", names);
  }

  // NAME.jinja beside chat_template.jinja.
  void add_more_templates(const std::string& folder) {
    constexpr std::string_view kEnd = ".jinja";
    FileSystem& files = FileSystem::local();
    if (files.type(folder) != FileType::kDirectory) return;
    std::vector<std::string> names = files.list(folder);
    std::erase_if(names, [&](const std::string& name) { return !name.ends_with(kEnd); });
    std::ranges::sort(names);
    for (std::string& name : names) {
      const std::string text = files.read_all(join_path(folder, name), kLongestTemplate);
      name.resize(name.size() - kEnd.size());
      metadata_.set("tokenizer.chat_template." + name, text);
    }
    if (!names.empty()) metadata_.set("tokenizer.chat_templates", names);
  }

  GgufMetadata& metadata_;
  const MergedModel& model_;
  std::string folder_;
  std::string path_;
  Json json_, config_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::map<std::string, Json, std::less<>> added_;  // ids of added tokens
};

}  // namespace

std::vector<int64_t> end_token_ids(const MergedModel& model) {
  std::vector<int64_t> ids;
  for (const std::string& folder : {model.folder, model.base}) {
    const std::string path = join_path(folder, kGenerationConfigFile);
    if (!FileSystem::local().exists(path)) continue;
    const Json value = member(read_json_file(path, ErrorKind::kData), "eos_token_id");
    for (const Json& id : value.is_array() ? value : Json::array({value})) {
      if (id.is_number_integer()) ids.push_back(id.get<int64_t>());
    }
    break;
  }
  return ids;
}

void add_tokenizer(GgufMetadata& metadata, const MergedModel& model) {
  TokenizerWriter(metadata, model).run();
}

}  // namespace finetune
