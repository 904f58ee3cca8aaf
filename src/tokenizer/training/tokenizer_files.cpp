// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "finetune/base/error.h"
#include "finetune/base/model_files.h"
#include "finetune/tokenizer/train_vocabulary.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Appends without the linear search of ordered_json's operator[].
void put_field(Json& object, std::string key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
}

Json byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", true}};
}

Json model_json(const TrainedVocabulary& vocabulary) {
  Json tokens = Json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    put_field(tokens, vocabulary.tokens[id], id);
  Json merges = Json::array();
  for (const auto& [left, right] : vocabulary.merges) merges.push_back(Json::array({left, right}));
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", ""},
                {"end_of_word_suffix", ""},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false}};
  put_field(model, "vocab", std::move(tokens));
  put_field(model, "merges", std::move(merges));
  return model;
}

size_t id_of(const TrainedVocabulary& vocabulary, const std::string& token) {
  const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
  FT_CHECK(found != vocabulary.tokens.end(), "a special token is not in the vocabulary");
  return static_cast<size_t>(found - vocabulary.tokens.begin());
}

std::string tokenizer_json(const TrainedVocabulary& vocabulary) {
  Json added = Json::array();
  for (const std::string& token : vocabulary.special_tokens) {
    added.push_back({{"id", id_of(vocabulary, token)},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  std::sort(added.begin(), added.end(), [](const Json& a, const Json& b) {
    return a["id"].get<size_t>() < b["id"].get<size_t>();
  });
  Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  put_field(json, "added_tokens", std::move(added));
  put_field(json, "normalizer", nullptr);
  put_field(json, "pre_tokenizer", byte_level(vocabulary.add_prefix_space));
  put_field(json, "post_processor",
            {{"type", "RobertaProcessing"},
             {"sep", Json::array({"</s>", id_of(vocabulary, "</s>")})},
             {"cls", Json::array({"<s>", id_of(vocabulary, "<s>")})},
             {"trim_offsets", true},
             {"add_prefix_space", vocabulary.add_prefix_space}});
  put_field(json, "decoder", byte_level(true));
  put_field(json, "model", model_json(vocabulary));
  return json.dump(2);
}

std::string tokenizer_config(const TrainedVocabulary& vocabulary,
                             std::optional<int64_t> model_max_length) {
  Json extra = Json::array();
  const std::vector<std::string> named = TrainVocabularyOptions().special_tokens;
  for (const std::string& token : vocabulary.special_tokens) {
    if (std::find(named.begin(), named.end(), token) == named.end()) extra.push_back(token);
  }
  // Sorted by key, as Python writes it. The length for "unknown" is int(1e30), which exceeds all
  // integer types here.
  constexpr const char* kUnknownLength = "1000000000000000019884624838656";
  Json json = {{"add_prefix_space", vocabulary.add_prefix_space},
               {"backend", "tokenizers"},
               {"bos_token", "<s>"},
               {"cls_token", "<s>"},
               {"eos_token", "</s>"},
               {"errors", "replace"}};
  if (!extra.empty()) json["extra_special_tokens"] = std::move(extra);
  json["mask_token"] = "<mask>";
  json["model_max_length"] = kUnknownLength;
  if (model_max_length) json["model_max_length"] = *model_max_length;
  json["pad_token"] = "<pad>";
  json["sep_token"] = "</s>";
  json["tokenizer_class"] = "RobertaTokenizer";
  json["trim_offsets"] = true;
  json["unk_token"] = "<unk>";
  std::string text = json.dump(2) + "\n";
  const std::string quoted = std::string("\"") + kUnknownLength + "\"";
  if (const size_t found = text.find(quoted); found != std::string::npos) {
    text.replace(found, quoted.size(), kUnknownLength);
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> make_tokenizer_files(
    const TrainedVocabulary& vocabulary, std::optional<int64_t> model_max_length) {
  return {{kTokenizerFile, tokenizer_json(vocabulary)},
          {kTokenizerConfigFile, tokenizer_config(vocabulary, model_max_length)}};
}

}  // namespace finetune
