// SPDX-License-Identifier: MIT
#include "tokenizer/byte_bpe_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/utf8.h"
#include "tokenizer/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr JsonLimits kLimits{.max_bytes = size_t{512} << 20, .max_depth = 32};

std::vector<std::pair<std::string, int32_t>> read_vocabulary(const Json& json,
                                                             const std::string& where) {
  if (static_cast<int64_t>(json.size()) > kMaxVocabulary) {
    throw Error(ErrorKind::kData, where + ": the vocabulary has more than " +
                                      std::to_string(kMaxVocabulary) + " tokens");
  }
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  vocabulary.reserve(json.size());
  for (const auto& [token, id] : json.items()) {
    if (token.size() > kMaxTokenBytes) {
      throw Error(ErrorKind::kData,
                  where + ": a token is longer than " + std::to_string(kMaxTokenBytes) + " bytes");
    }
    vocabulary.emplace_back(token, to_id(id, "the token '" + token + "'", where));
  }
  return vocabulary;
}

std::pair<std::string, std::string> split_merge(const std::string& text, const std::string& place) {
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    throw Error(ErrorKind::kData, place + ": a merge is two tokens with one space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<std::pair<std::string, std::string>> read_merges(const Json& json,
                                                             const std::string& where) {
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(json.size());
  for (const Json& item : json) {
    const std::string place = where + ": merge " + std::to_string(merges.size() + 1);
    if (item.is_string()) {
      merges.push_back(split_merge(item.get<std::string>(), place));
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
    } else {
      throw Error(ErrorKind::kData, place + " must be \"a b\" or [\"a\", \"b\"]");
    }
  }
  return merges;
}

void read_model(const Json& json, const std::string& where, ByteBpeParts& parts) {
  const std::string type = optional_string(json, "type", where).value_or("BPE");
  if (type != "BPE") throw unsupported(where, "the model '" + type + "'");
  const auto dropout = json.find("dropout");
  if (dropout != json.end() && !dropout->is_null() && *dropout != 0.0) {
    throw unsupported(where, "BPE dropout");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!optional_string(json, affix, where).value_or("").empty()) {
      throw unsupported(where, std::string("a BPE model with '") + affix + "'");
    }
  }
  if (optional_bool(json, "byte_fallback", false, where)) {
    throw unsupported(where, "a BPE model with 'byte_fallback'");
  }
  BpeParts bpe;
  bpe.vocabulary = read_vocabulary(object_field(json, "vocab", where), where);
  bpe.merges = read_merges(array_field(json, "merges", where), where);
  bpe.unk_token = optional_string(json, "unk_token", where);
  bpe.fuse_unk = optional_bool(json, "fuse_unk", false, where);
  bpe.ignore_merges = optional_bool(json, "ignore_merges", false, where);
  parts.model = std::make_unique<BpeModel>(std::move(bpe), where);
}

void read_pre_tokenizer(const Json& json, const std::string& where, ByteBpeParts& parts) {
  if (json.is_null()) throw unsupported(where, "a tokenizer without the pre_tokenizer ByteLevel");
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    const Json& items = array_field(json, "pretokenizers", where);
    if (items.size() != 1) throw unsupported(where, "a pre_tokenizer in several steps");
    read_pre_tokenizer(items[0], where, parts);
    return;
  }
  if (type != "ByteLevel") throw unsupported(where, "the pre_tokenizer '" + type + "'");
  parts.add_prefix_space = bool_field(json, "add_prefix_space", where);
  parts.use_regex = optional_bool(json, "use_regex", true, where);
}

void read_decoder(const Json& json, const std::string& where, ByteBpeParts& parts) {
  parts.byte_level_decoder = !json.is_null();
  if (json.is_null()) return;
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    const Json& items = array_field(json, "decoders", where);
    if (items.size() != 1) throw unsupported(where, "a decoder in several steps");
    read_decoder(items[0], where, parts);
  } else if (type != "ByteLevel") {
    throw unsupported(where, "the decoder '" + type + "'");
  }
}

std::optional<int32_t> find_id(const ByteBpeParts& parts, const std::string& content) {
  for (const AddedToken& token : parts.added_tokens) {
    if (token.content == content) return token.id;
  }
  return parts.model->token_to_id(content);
}

// The id that the tokenizers package gives to a token that the vocabulary lacks.
int32_t next_id(const ByteBpeParts& parts) {
  int64_t next = parts.model->count();
  for (const AddedToken& token : parts.added_tokens) {
    next = std::max<int64_t>(next, int64_t{token.id} + 1);
  }
  return static_cast<int32_t>(next);
}

void read_added_tokens(const Json& json, const std::string& where, ByteBpeParts& parts) {
  if (static_cast<int64_t>(json.size()) > kMaxVocabulary / 4) {
    throw Error(ErrorKind::kData, where + ": has more than a million added tokens");
  }
  std::unordered_set<std::string> seen;
  for (const Json& item : json) {
    AddedToken token;
    token.content = string_field(item, "content", where);
    if (token.content.empty() || token.content.size() > kMaxTokenBytes ||
        !seen.insert(token.content).second) {
      throw Error(ErrorKind::kData, where +
                                        ": an added token is empty, too long or there twice: '" +
                                        token.content.substr(0, 40) + "'");
    }
    token.id = to_id(field(item, "id", where), "the added token '" + token.content + "'", where);
    token.single_word = bool_field(item, "single_word", where);
    token.lstrip = bool_field(item, "lstrip", where);
    token.rstrip = bool_field(item, "rstrip", where);
    token.normalized = bool_field(item, "normalized", where);
    token.special = bool_field(item, "special", where);
    const auto known = parts.model->token_to_id(token.content);
    if (known ? *known != token.id : !parts.model->id_to_token(token.id).empty()) {
      throw Error(ErrorKind::kData, where + ": the added token '" + token.content +
                                        "' has the id " + std::to_string(token.id) +
                                        ", which the vocabulary gives to " +
                                        (known ? "it as " + std::to_string(*known)
                                               : "'" + parts.model->id_to_token(token.id) + "'"));
    }
    parts.added_tokens.push_back(std::move(token));
  }
  std::unordered_set<int32_t> ids;
  for (const AddedToken& token : parts.added_tokens) {
    if (!ids.insert(token.id).second) {
      throw Error(ErrorKind::kData,
                  where + ": two added tokens have the id " + std::to_string(token.id));
    }
  }
}

// Named tokens become added tokens, as transformers does; `only_known` leaves out those that the
// vocabulary lacks.
void add_named_tokens(const TokenizerFolder& folder, bool only_known, ByteBpeParts& parts) {
  for (const auto& [name, token] : folder.named) {
    std::optional<int32_t> id = find_id(parts, token.content);
    if (!id && only_known) continue;
    const std::string& content = token.content;  // clang 14 captures no structured binding
    const bool added = std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                                   [&](const AddedToken& t) { return t.content == content; });
    if (!added) {
      AddedToken copy = token;
      copy.id = id ? *id : next_id(parts);
      id = copy.id;
      parts.added_tokens.push_back(std::move(copy));
    }
    set_special_token(parts.special_tokens, name, {.text = token.content, .id = *id});
  }
}

void add_roberta_processing(ByteBpeParts& parts) {
  const SpecialTokens& special = parts.special_tokens;
  if (special.cls && special.sep) {
    parts.post_processor = PostProcessor::roberta(special.cls->id, special.sep->id,
                                                  {.add_prefix_space = parts.add_prefix_space});
  }
}

void check_processor_ids(const ByteBpeParts& parts, const std::string& where) {
  for (const int32_t id : parts.post_processor.added_ids()) {
    const bool known = !parts.model->id_to_token(id).empty() ||
                       std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                                   [&](const AddedToken& token) { return token.id == id; });
    if (!known) {
      throw Error(ErrorKind::kData, where + ": the post_processor adds the id " +
                                        std::to_string(id) + ", which no token has");
    }
  }
}

}  // namespace

ByteBpeParts parse_tokenizer_json(const std::string& text, const std::string& where,
                                  TokenizerFolder folder) {
  const Json json = parse_json(text, where, ErrorKind::kData, kLimits);
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must be a JSON object");
  const auto part = [&](const char* key) {
    const auto found = json.find(key);
    return found == json.end() ? Json() : *found;
  };
  ByteBpeParts parts;
  read_model(object_field(json, "model", where), where, parts);
  parts.normalizer = Normalizer(part("normalizer"), where);
  read_pre_tokenizer(part("pre_tokenizer"), where, parts);
  read_decoder(part("decoder"), where, parts);
  if (const Json added = part("added_tokens"); !added.is_null()) {
    read_added_tokens(array_field(json, "added_tokens", where), where, parts);
  }
  parts.post_processor = PostProcessor(part("post_processor"), where);

  // Without a word about the class RoBERTa's names are tried, as far as the vocabulary has them.
  const bool assumed = folder.class_name.empty() && folder.named.empty();
  if (folder.is_roberta() || assumed) add_roberta_names(folder);
  add_named_tokens(folder, assumed, parts);
  if (folder.is_roberta()) {
    parts.add_prefix_space = folder.add_prefix_space.value_or(parts.add_prefix_space);
    // Files that ByteLevelBPETokenizer.save() left have none of the class's own.
    if (parts.post_processor.empty()) add_roberta_processing(parts);
  }
  check_processor_ids(parts, where);
  parts.token_types = folder.token_types && !folder.is_roberta();
  parts.sides = folder.sides;
  parts.files = std::move(folder.files);
  parts.files.emplace_back("tokenizer.json", text);
  return parts;
}

ByteBpeParts parse_vocab_and_merges(const std::string& vocab, const std::string& merges,
                                    TokenizerFolder folder) {
  const std::string vocab_path = join_path(folder.path, "vocab.json");
  const std::string merges_path = join_path(folder.path, "merges.txt");
  if (!folder.class_name.empty() && !folder.is_roberta() &&
      !folder.class_name.starts_with("PreTrained")) {
    throw unsupported(folder.path, "vocab.json and merges.txt of a '" + folder.class_name + "'");
  }
  const Json json = parse_json(vocab, vocab_path, ErrorKind::kData, kLimits);
  if (!json.is_object()) throw Error(ErrorKind::kData, vocab_path + ": must be a JSON object");
  BpeParts bpe;
  bpe.vocabulary = read_vocabulary(json, vocab_path);
  int64_t number = 0;
  for (size_t start = 0; start < merges.size();) {
    const size_t end = std::min(merges.find('\n', start), merges.size());
    std::string line = merges.substr(start, end - start);
    if (line.ends_with('\r')) line.pop_back();
    start = end + 1;
    ++number;
    if (line.starts_with("#version")) continue;
    const std::string place = merges_path + ":" + std::to_string(number);
    if (utf8::find_invalid(line) != std::string::npos) {
      throw Error(ErrorKind::kData, place + ": is not valid UTF-8");
    }
    bpe.merges.push_back(split_merge(line, place));
  }
  ByteBpeParts parts;
  parts.model = std::make_unique<BpeModel>(std::move(bpe), merges_path);
  parts.add_prefix_space = folder.add_prefix_space.value_or(false);
  for (AddedToken token : folder.added_tokens) {
    const auto known = parts.model->token_to_id(token.content);
    if (known) token.id = *known;
    if (!known && token.id != next_id(parts)) {
      throw Error(ErrorKind::kData, join_path(folder.path, "tokenizer_config.json") +
                                        ": the added token '" + token.content + "' has the id " +
                                        std::to_string(token.id) + ", the next free one is " +
                                        std::to_string(next_id(parts)));
    }
    parts.added_tokens.push_back(std::move(token));
  }
  add_roberta_names(folder);
  add_named_tokens(folder, false, parts);
  add_roberta_processing(parts);
  parts.token_types = folder.token_types && !folder.is_roberta();
  parts.sides = folder.sides;
  parts.files = std::move(folder.files);
  parts.files.emplace_back("vocab.json", vocab);
  parts.files.emplace_back("merges.txt", merges);
  return parts;
}

}  // namespace finetune::tokenizer
