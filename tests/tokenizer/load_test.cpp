// SPDX-License-Identifier: MIT
// Folders without a usable tokenizer: the error is one sentence with the file and the problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/error.h"
#include "finetune/tokenizer/tokenizer.h"
#include "golden_files.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::changed_base;
using testing::golden_json;
using testing::golden_text;
using ::testing::HasSubstr;
using testing::Json;
using testing::TemporaryFolder;

std::string message_of(const std::string& folder) {
  try {
    (void)load_tokenizer(folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "nothing was thrown";
}

std::string message_of_files(const std::vector<std::pair<std::string, std::string>>& files) {
  const TemporaryFolder folder;
  for (const auto& [name, content] : files) folder.write(name, content);
  return message_of(folder.path());
}

std::string message_of_json(const Json& changes) {
  return message_of_files({{"tokenizer.json", changed_base(changes).dump()}});
}

Json changed_model(const char* key, const Json& value) {
  Json model = golden_json("base.json")["model"];
  model[key] = value;
  return {{"model", model}};
}

TEST(LoadTokenizer, NamesAFolderThatIsMissing) { EXPECT_GOLDEN(message_of("/no/such/folder")); }

TEST(LoadTokenizer, SaysWhatItLookedFor) {
  EXPECT_GOLDEN(message_of_files({}));
  EXPECT_GOLDEN(message_of_files({{"vocab.json", "{}"}}));
}

TEST(LoadTokenizer, RefusesTruncatedJsonWithItsLine) {
  const std::string text = golden_text("base.json");
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", text.substr(0, 3000)}}));
}

TEST(LoadTokenizer, RefusesEmptyAndAlienFiles) {
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", ""}}));
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", "[]"}}));
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", "{}"}}));
}

TEST(LoadTokenizer, RefusesInvalidUtf8) {
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", "{\"model\": \"\xFF\"}"}}));
  EXPECT_GOLDEN(message_of_files({{"vocab.json", R"({"a": 0})"}, {"merges.txt", "a \xFF\n"}}));
}

TEST(LoadTokenizer, NamesOtherModels) {
  EXPECT_GOLDEN(message_of_json(changed_model("type", "WordLevel")));
}

TEST(LoadTokenizer, NamesWhatAModelLacks) {
  EXPECT_THAT(message_of_json(changed_model("dropout", 0.1)), HasSubstr("BPE dropout"));
  EXPECT_GOLDEN(message_of_json(changed_model("type", "Unigram")));
  EXPECT_GOLDEN(message_of_json(changed_model("type", "WordPiece")));
  EXPECT_GOLDEN(message_of_json({{"model", {{"type", "Unigram"}, {"vocab", {{"a", 0}, {"b"}}}}}}));
  EXPECT_GOLDEN(message_of_files({{"vocab.txt", "[PAD]\n"}}));
  EXPECT_GOLDEN(message_of_files({{"vocab.txt", "[UNK]\n\xFF\n"}}));
}

TEST(LoadTokenizer, NamesComponentsThatItDoesNotHave) {
  EXPECT_GOLDEN(message_of_json({{"normalizer", {{"type", "Mine"}}}}));
  EXPECT_GOLDEN(message_of_json({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}));
  EXPECT_GOLDEN(message_of_json({{"post_processor", {{"type", "Mine"}}}}));
  EXPECT_GOLDEN(message_of_json({{"decoder", {{"type", "CTC"}}}}));
}

std::string message_of_regex(const std::string& regex) {
  return message_of_json(
      {{"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", regex}}}, {"content", ""}}}});
}

TEST(LoadTokenizer, RefusesARegularExpressionThatIsNoneOrMeansSomethingElse) {
  for (const char* regex :
       {"(a", "(?i)a", "a|", "", "a**", "(a)\\1", "\\h", "\\p{Greek}", "[a", "a{", "a{2", "a{3,2}",
        "[b-a]", "[]", "(?!a", "\\", "[a&&b]", "(?:a?)*b", "a{99999}"}) {
    EXPECT_GOLDEN(message_of_regex(regex)) << regex;
  }
}

TEST(LoadTokenizer, RefusesIdsThatAreNoIds) {
  EXPECT_GOLDEN(message_of_json(changed_model("vocab", {{"a", -1}})));
  EXPECT_GOLDEN(message_of_json(changed_model("vocab", {{"a", 1.5}})));
  EXPECT_GOLDEN(message_of_json(changed_model("vocab", {{"a", 1e18}})));
  EXPECT_GOLDEN(message_of_json(changed_model("vocab", {{"a", 0}, {"b", 0}})));
  EXPECT_THAT(message_of_json(changed_model("vocab", Json::object())), HasSubstr("empty"));
}

TEST(LoadTokenizer, RefusesMergesThatAreNoPairs) {
  EXPECT_THAT(message_of_json(changed_model("merges", {"a b c"})), HasSubstr("merge 1"));
  EXPECT_THAT(message_of_json(changed_model("merges", {Json::array({"a"})})), HasSubstr("merge 1"));
  EXPECT_GOLDEN(message_of_files({{"vocab.json", R"({"a": 0, "b": 1})"}, {"merges.txt", "a b\n"}}));
  EXPECT_GOLDEN(message_of_files({{"vocab.json", R"({"a": 0})"}, {"merges.txt", "#version\na\n"}}));
}

TEST(LoadTokenizer, RefusesAnAddedTokenWithAnotherTokensId) {
  Json added = golden_json("base.json")["added_tokens"];
  added[4]["id"] = 9;
  EXPECT_GOLDEN(message_of_json({{"added_tokens", added}}));
  added[4]["id"] = 4;
  added[4]["content"] = "<other>";
  EXPECT_GOLDEN(message_of_json({{"added_tokens", added}}));
  added[4] = added[3];
  EXPECT_GOLDEN(message_of_json({{"added_tokens", added}}));
}

TEST(LoadTokenizer, RefusesAProcessorThatAddsUnknownIds) {
  EXPECT_GOLDEN(message_of_json(
      {{"post_processor",
        {{"type", "RobertaProcessing"}, {"sep", {"</s>", 5000}}, {"cls", {"<s>", 0}}}}}));
}

TEST(LoadTokenizer, NamesMeCab) {
  EXPECT_GOLDEN(message_of_files({{"vocab.txt", "x\n"},
                                  {"tokenizer_config.json",
                                   R"({"tokenizer_class": "BertJapaneseTokenizer",
                                     "word_tokenizer_type": "mecab"})"}}));
}

TEST(LoadTokenizer, RefusesADamagedConfig) {
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", golden_text("base.json")},
                                  {"tokenizer_config.json", "{\"mask_token\": 7}"}}));
  EXPECT_THAT(message_of_files(
                  {{"tokenizer.json", golden_text("base.json")}, {"tokenizer_config.json", "{"}}),
              HasSubstr("tokenizer_config.json"));
}

TEST(LoadTokenizer, SurvivesEveryTruncation) {
  const std::string text = golden_text("base.json");
  const TemporaryFolder folder;
  for (size_t size = 0; size < text.size(); size += 997) {
    folder.write("tokenizer.json", text.substr(0, size));
    EXPECT_THROW((void)load_tokenizer(folder.path()), Error) << size;
  }
}

TEST(LoadTokenizer, NamesAClassThatIsNotSupported) {
  const std::string albert = R"({"tokenizer_class": "AlbertTokenizerFast"})";
  for (const char* file : {"tokenizer.json", "spiece.model", "vocab.txt"}) {
    const std::string content =
        file == std::string("tokenizer.json") ? golden_text("base.json") : "";
    EXPECT_THAT(message_of_files({{file, content}, {"tokenizer_config.json", albert}}),
                HasSubstr("'AlbertTokenizer'"));
  }
  // The class of the model type, whose model the file does not have.
  EXPECT_GOLDEN(message_of_files({{"tokenizer.json", golden_text("base.json")},
                                  {"config.json", R"({"model_type": "bert"})"}}));
}

}  // namespace
}  // namespace finetune
