// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/pipeline_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "tokenizer/models/bpe_model.h"
#include "tokenizer/models/wordpiece_model.h"
#include "tokenizer/pipeline/class_pipeline.h"
#include "tokenizer/pipeline/model_files.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr JsonLimits kLimits{.max_bytes = size_t{512} << 20, .max_depth = 32};

std::optional<int32_t> find_id(const PipelineParts& parts, const std::string& content) {
  for (const AddedToken& token : parts.added_tokens) {
    if (token.content == content) return token.id;
  }
  return parts.model->token_to_id(content);
}

// Returns the id that the tokenizers package assigns to a token that is not in the vocabulary.
int32_t next_id(const PipelineParts& parts) {
  int64_t next = parts.model->count();
  for (const AddedToken& token : parts.added_tokens) {
    next = std::max<int64_t>(next, int64_t{token.id} + 1);
  }
  return static_cast<int32_t>(next);
}

AddedToken read_added_token(const Json& item, const std::string& where) {
  AddedToken token;
  token.content = string_field(item, "content", where);
  token.id = to_id(field(item, "id", where), "the added token '" + token.content + "'", where);
  token.single_word = bool_field(item, "single_word", where);
  token.lstrip = bool_field(item, "lstrip", where);
  token.rstrip = bool_field(item, "rstrip", where);
  token.normalized = bool_field(item, "normalized", where);
  token.special = bool_field(item, "special", where);
  return token;
}

void read_added_tokens(const Json& json, const std::string& where, PipelineParts& parts) {
  if (static_cast<int64_t>(json.size()) > kMaxVocabulary / 4) {
    throw Error(ErrorKind::kData, where + ": has more than a million added tokens");
  }
  std::unordered_set<std::string> seen;
  std::unordered_set<int32_t> ids;
  for (const Json& item : json) {
    AddedToken token = read_added_token(item, where);
    if (token.content.empty() || token.content.size() > kMaxTokenBytes ||
        !seen.insert(token.content).second) {
      throw Error(ErrorKind::kData, where +
                                        ": an added token is empty, too long or there twice: '" +
                                        token.content.substr(0, 40) + "'");
    }
    const auto known = parts.model->token_to_id(token.content);
    if (known ? *known != token.id : !parts.model->id_to_token(token.id).empty()) {
      throw Error(
          ErrorKind::kData,
          format_text("{}: the added token '{}' has the id {}, which the vocabulary gives to {}",
                      where, token.content, token.id,
                      known ? format_text("it as {}", *known)
                            : "'" + parts.model->id_to_token(token.id) + "'"));
    }
    // The package numbers such tokens after the vocabulary and ignores the id in the file.
    const int32_t next = next_id(parts);
    if (!known && parts.model->id_to_token(next).empty()) token.id = next;
    if (!ids.insert(token.id).second) {
      throw Error(ErrorKind::kData,
                  format_text("{}: two added tokens have the id {}", where, token.id));
    }
    parts.added_tokens.push_back(std::move(token));
  }
}

AddedToken* find_added(PipelineParts& parts, const std::string& content) {
  const auto found = std::find_if(parts.added_tokens.begin(), parts.added_tokens.end(),
                                  [&](const AddedToken& t) { return t.content == content; });
  return found == parts.added_tokens.end() ? nullptr : &*found;
}

// Adds tokenizer_config.json's added_tokens_decoder, whose flags override those in tokenizer.json.
void add_config_tokens(const TokenizerFolder& folder, PipelineParts& parts) {
  for (AddedToken token : folder.added_tokens) {
    if (AddedToken* known = find_added(parts, token.content)) {
      token.id = known->id;
      *known = std::move(token);
      continue;
    }
    const auto known = parts.model->token_to_id(token.content);
    if (known) token.id = *known;
    if (!known && token.id != next_id(parts)) {
      throw Error(ErrorKind::kData,
                  format_text("{}: the added token '{}' would get the id {}, not {}",
                              join_path(folder.path, kTokenizerConfigFile), token.content,
                              next_id(parts), token.id));
    }
    parts.added_tokens.push_back(std::move(token));
  }
}

// Makes named tokens added tokens, as transformers does; `only_known` skips those that are not in
// the vocabulary.
void add_named_tokens(const TokenizerFolder& folder, bool only_known, PipelineParts& parts) {
  for (const auto& [name, token] : folder.named) {
    std::optional<int32_t> id = find_id(parts, token.content);
    if (!id && only_known) continue;
    if (AddedToken* known = find_added(parts, token.content)) {
      known->special = true;
    } else {
      AddedToken copy = token;
      copy.id = id ? *id : next_id(parts);
      id = copy.id;
      parts.added_tokens.push_back(std::move(copy));
    }
    set_special_token(parts.special_tokens, name, {.text = token.content, .id = *id});
  }
}

// Without a class name, assumes the usual names: BERT's or BigBird's if the vocabulary has [CLS],
// else RoBERTa's.
void assume_names(TokenizerFolder& folder, const PipelineParts& parts) {
  const std::string class_name = folder.class_name;
  if (find_id(parts, "[CLS]")) {
    folder.class_name = find_id(parts, "[UNK]") ? "BertTokenizer" : "BigBirdTokenizer";
  }
  add_class_names(folder);
  folder.class_name = class_name;
}

void check_processor_ids(const PipelineParts& parts, const std::string& where) {
  for (const int32_t id : parts.post_processor.added_ids()) {
    const bool known = !parts.model->id_to_token(id).empty() ||
                       std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                                   [&](const AddedToken& token) { return token.id == id; });
    if (!known) {
      throw Error(
          ErrorKind::kData,
          format_text("{}: the post_processor adds the id {}, which no token has", where, id));
    }
  }
}

// Returns the Precompiled among a tokenizer.json's normalizers; null if there is none.
Json find_charsmap(const Json& normalizer) {
  if (!normalizer.is_object()) return nullptr;
  const auto type = normalizer.find("type");
  if (type == normalizer.end()) return nullptr;
  if (*type == "Precompiled") return normalizer;
  const auto items = normalizer.find("normalizers");
  if (*type != "Sequence" || items == normalizer.end() || !items->is_array()) return nullptr;
  for (const Json& item : *items) {
    if (item.is_object() && item.contains("type") && item["type"] == "Precompiled") return item;
  }
  return nullptr;
}

void set_model(ReadModel read, PipelineParts& parts) {
  parts.model = std::move(read.model);
  parts.continuing_prefix = std::move(read.continuing_prefix);
  parts.unigram = read.unigram;
  if (!read.takes_bytes) parts.pre_tokenizer.spell_bytes();
}

// Returns the class whose parts replace the file's. Throws Error(kData) if this version cannot
// build the ids that transformers' class builds.
TokenizerClass class_for(const TokenizerFolder& folder, const std::string& model,
                         const std::string& where) {
  const TokenizerClass which = class_of(folder);
  const bool unsupported = is_unsupported_class(folder.class_name);
  const std::string of_class = class_model(which);
  if (!unsupported && (of_class.empty() || of_class == model)) return which;
  const std::string problem =
      unsupported ? "which is not supported"
                  : format_text("whose model is {}, but this file's model is {}", of_class, model);
  const char* advice =
      folder.fixed_class
          ? "this model_type in config.json always has that class: use the model's own tokenizer"
          : "to use tokenizer.json as it is, set \"tokenizer_class\": \"TokenizersBackend\" in "
            "tokenizer_config.json";
  throw Error(ErrorKind::kData, format_text("{}: transformers loads this folder as '{}', {}; {}",
                                            where, folder.class_name, problem, advice));
}

// Reads the sides from tokenizer.json's padding and truncation, as transformers does.
void read_sides(const Json& json, const TokenizerFolder& folder, PipelineParts& parts) {
  parts.sides = folder.sides;
  if (folder.sides_given) return;
  const auto left = [&](const char* key, const char* side) {
    const auto found = json.find(key);
    return found != json.end() && found->is_object() && found->contains("direction") &&
           (*found)["direction"] == side;
  };
  parts.sides = {left("padding", "Left"), left("truncation", "Left")};
}

void finish(TokenizerFolder& folder, PipelineParts& parts) {
  parts.token_types = folder.token_types;
  parts.files = std::move(folder.files);
}

}  // namespace

void complete_class(TokenizerFolder& folder, const nlohmann::ordered_json& charsmap,
                    const std::string& where, PipelineParts& parts,
                    const nlohmann::ordered_json& post_processor) {
  const TokenizerClass which = class_of(folder);
  const Json pipeline = class_pipeline(which, folder, charsmap);
  parts.normalizer = Normalizer(pipeline["normalizer"], where);
  parts.pre_tokenizer = PreTokenizer(pipeline["pre_tokenizer"], where);
  parts.decoder = Decoder(pipeline["decoder"], where);
  add_class_names(folder);
  add_named_tokens(folder, false, parts);
  parts.post_processor = PostProcessor(
      class_post_processor(which, folder, parts.special_tokens, post_processor), where);
  check_processor_ids(parts, where);
  parts.sides = folder.sides;
  finish(folder, parts);
}

PipelineParts parse_tokenizer_json(const std::string& text, const std::string& where,
                                   TokenizerFolder folder) {
  const Json json = parse_json(text, where, ErrorKind::kData, kLimits);
  if (!json.is_object()) throw Error(ErrorKind::kData, where + ": must be a JSON object");
  const auto part = [&](const char* key) {
    const auto found = json.find(key);
    return found == json.end() ? Json() : *found;
  };
  const Json& model = object_field(json, "model", where);
  const TokenizerClass which = class_for(folder, model_type(model, where), where);
  // As in transformers: if tokenizer.json exists, only its post_processor counts.
  folder.add_bos_token.reset();
  folder.add_eos_token.reset();
  PipelineParts parts;
  const bool own = which != TokenizerClass::kOther;
  parts.pre_tokenizer = PreTokenizer(
      own ? class_pipeline(which, folder, nullptr)["pre_tokenizer"] : part("pre_tokenizer"), where);
  set_model(read_model(model, where, which, folder, parts.pre_tokenizer.byte_level().has_value()),
            parts);
  if (const Json added = part("added_tokens"); !added.is_null()) {
    read_added_tokens(array_field(json, "added_tokens", where), where, parts);
  }
  add_config_tokens(folder, parts);
  folder.files.emplace_back(kTokenizerFile, text);
  if (own) {
    complete_class(folder, find_charsmap(part("normalizer")), where, parts, part("post_processor"));
  } else {
    parts.normalizer = Normalizer(part("normalizer"), where);
    parts.decoder = Decoder(part("decoder"), where);
    const bool assumed = folder.class_name.empty() && folder.named.empty();
    if (assumed) assume_names(folder, parts);
    add_named_tokens(folder, assumed, parts);
    parts.post_processor = PostProcessor(
        class_post_processor(which, folder, parts.special_tokens, part("post_processor")), where);
    check_processor_ids(parts, where);
    finish(folder, parts);
  }
  read_sides(json, folder, parts);
  return parts;
}

PipelineParts parse_vocab_and_merges(const std::string& vocab, const std::string& merges,
                                     TokenizerFolder folder) {
  const std::string vocab_path = join_path(folder.path, kVocabularyFile);
  const std::string merges_path = join_path(folder.path, kMergesFile);
  const TokenizerClass which = class_of(folder);
  const bool language_model = which == TokenizerClass::kGpt2 || which == TokenizerClass::kQwen2;
  if (!folder.class_name.empty() && which != TokenizerClass::kRoberta && !language_model &&
      !folder.class_name.starts_with("PreTrained")) {
    throw unsupported(folder.path, "vocab.json and merges.txt of a '" + folder.class_name + "'");
  }
  if (!language_model) folder.class_name = "RobertaTokenizer";
  const Json json = parse_json(vocab, vocab_path, ErrorKind::kData, kLimits);
  if (!json.is_object()) throw Error(ErrorKind::kData, vocab_path + ": must be a JSON object");
  BpeParts bpe;
  bpe.vocabulary = read_vocabulary(json, vocab_path);
  bpe.merges = read_merges_txt(merges, merges_path);
  PipelineParts parts;
  parts.model = std::make_unique<BpeModel>(std::move(bpe), merges_path);
  add_config_tokens(folder, parts);
  folder.files.emplace_back(kVocabularyFile, vocab);
  folder.files.emplace_back(kMergesFile, merges);
  complete_class(folder, nullptr, folder.path, parts, nullptr);
  return parts;
}

PipelineParts parse_vocab_txt(const std::string& vocab, TokenizerFolder folder) {
  const std::string path = join_path(folder.path, kVocabularyTextFile);
  if (!folder.class_name.empty() && !folder.class_name.starts_with("PreTrained") &&
      class_of(folder) != TokenizerClass::kBert) {
    throw unsupported(folder.path, "vocab.txt of a '" + folder.class_name + "'");
  }
  folder.class_name = "BertTokenizer";
  WordPieceParts wordpiece;
  wordpiece.vocabulary = read_vocab_txt(vocab, path);
  for (const auto& [name, token] : folder.named) {
    if (name == "unk_token") wordpiece.unk_token = token.content;
  }
  PipelineParts parts;
  parts.continuing_prefix = wordpiece.continuing_subword_prefix;
  parts.model = std::make_unique<WordPieceModel>(std::move(wordpiece), path);
  add_config_tokens(folder, parts);
  folder.files.emplace_back(kVocabularyTextFile, vocab);
  complete_class(folder, nullptr, folder.path, parts, nullptr);
  return parts;
}

}  // namespace finetune::tokenizer
