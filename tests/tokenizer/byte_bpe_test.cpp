// SPDX-License-Identifier: MIT
// Compares byte-level BPE with ids from the tokenizers package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/tokenizer/tokenizer.h"
#include "golden_files.h"

namespace finetune {
namespace {

using testing::changed_base;
using ::testing::ElementsAre;
using testing::golden_json;
using testing::golden_text;
using ::testing::IsEmpty;
using testing::Json;
using testing::TemporaryFolder;

using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> load_changed(const Json& changes) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", changed_base(changes).dump());
  return load_tokenizer(folder.path());
}

constexpr size_t kByteCases = 16;

class GoldenCase : public ::testing::TestWithParam<size_t> {};

TEST_P(GoldenCase, GivesTheIdsOfTheTokenizersPackage) {
  const Json goldens = golden_json("cases.json");
  ASSERT_EQ(goldens["cases"].size(), kByteCases);
  const Json& golden = goldens["cases"][GetParam()];
  const auto tokenizer = load_changed(golden["changes"]);
  for (size_t i = 0; i < golden["ids"].size(); ++i) {
    const std::string text = goldens["texts"][i];
    const Ids expected = golden["ids"][i];
    EXPECT_EQ(tokenizer->encode(text), expected) << golden["name"] << ": " << goldens["texts"][i];
    if (!golden.contains("decoded")) continue;
    Ids cut = {0};
    if (!expected.empty()) cut.insert(cut.end(), expected.begin() + 1, expected.end());
    EXPECT_EQ(tokenizer->decode(cut, false), golden["decoded"][i]) << goldens["texts"][i];
    EXPECT_EQ(tokenizer->decode(cut, true), golden["skipped"][i]) << goldens["texts"][i];
  }
  EXPECT_EQ(tokenizer->add_special_tokens(tokenizer->encode("La suno")),
            Ids(golden["with_special"]));
  EXPECT_EQ(
      tokenizer->num_special_tokens_to_add(),
      static_cast<int64_t>(golden["with_special"].size() - tokenizer->encode("La suno").size()));
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenCase, ::testing::Range<size_t>(0, kByteCases));

TEST(ByteBpe, GivesTheSameIdsFromVocabJsonAndMergesTxt) {
  const TemporaryFolder folder;
  folder.write("vocab.json", golden_text("vocab.json"));
  folder.write("merges.txt", golden_text("merges.txt"));
  const auto tokenizer = load_tokenizer(folder.path());
  const Json goldens = golden_json("cases.json");
  for (size_t i = 0; i < 80; ++i) {
    EXPECT_EQ(tokenizer->encode(std::string(goldens["texts"][i])),
              Ids(goldens["cases"][0]["ids"][i]));
  }
  EXPECT_EQ(tokenizer->add_special_tokens(Ids{7}), (Ids{0, 7, 2}));
  EXPECT_EQ(tokenizer->size(), 420);
}

TEST(ByteBpe, ReadsMergesSpeltWithASpace) {
  Json model = golden_json("base.json")["model"];
  for (Json& merge : model["merges"]) {
    merge = std::string(merge[0]) + " " + std::string(merge[1]);
  }
  EXPECT_EQ(load_changed({{"model", model}})->encode("La suno brilas"),
            load_changed(Json::object())->encode("La suno brilas"));
}

TEST(ByteBpe, TakesAWholeWordOfTheVocabularyWhereMergesAreIgnored) {
  Json model = golden_json("base.json")["model"];
  model["merges"] = Json::array();
  model["vocab"]["ĠLa"] = 420;
  model["ignore_merges"] = true;
  EXPECT_THAT(load_changed({{"model", model}})->encode(" La"), ElementsAre(420));
}

TEST(ByteBpe, FusesNeighbouringUnknownBytesWhereAsked) {
  Json model = {{"type", "BPE"},
                {"unk_token", "?"},
                {"fuse_unk", true},
                {"vocab", {{"?", 0}, {"a", 1}, {"<s>", 2}, {"</s>", 3}}},
                {"merges", Json::array()}};
  const Json changes = {
      {"model", model}, {"added_tokens", Json::array()}, {"post_processor", nullptr}};
  EXPECT_THAT(load_changed(changes)->encode("axya"), ElementsAre(1, 0, 1));
  model["fuse_unk"] = false;
  EXPECT_THAT(
      load_changed({{"model", model}, {"added_tokens", Json::array()}, {"post_processor", nullptr}})
          ->encode("axya"),
      ElementsAre(1, 0, 0, 1));
}

TEST(ByteBpe, KnowsItsSpecialTokensByName) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", golden_text("base.json"));
  folder.write("tokenizer_config.json", golden_text("base_config.json"));
  const auto tokenizer = load_tokenizer(folder.path());
  const SpecialTokens& special = tokenizer->special_tokens();
  ASSERT_TRUE(special.mask && special.pad && special.cls && special.sep && special.unk);
  EXPECT_EQ(special.mask->text, "<mask>");
  EXPECT_EQ(special.mask->id, 4);
  EXPECT_EQ(special.pad->id, 1);
  EXPECT_EQ(special.cls->id, 0);
  EXPECT_EQ(special.sep->id, 2);
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_FALSE(tokenizer->is_special(5));
  EXPECT_EQ(tokenizer->token_to_id("<mask>"), 4);
  EXPECT_EQ(tokenizer->token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(4), "<mask>");
  EXPECT_THAT(tokenizer->id_to_token(99999), IsEmpty());
  EXPECT_THAT(tokenizer->id_to_token(-1), IsEmpty());
}

TEST(ByteBpe, TakesTheFlagsOfAnObjectThatNamesTheMask) {
  const TemporaryFolder folder;
  folder.write("vocab.json", golden_text("vocab.json"));
  folder.write("merges.txt", golden_text("merges.txt"));
  folder.write("special_tokens_map.json",
               R"({"mask_token": {"content": "<mask>", "lstrip": true}})");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("x <mask>"), (Ids{tokenizer->encode("x").front(), 4}));
}

TEST(ByteBpe, GivesNamedTokensThatTheVocabularyLacksTheNextIds) {
  const TemporaryFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.write("merges.txt", "#version: 0.2\na b\n");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_THAT(tokenizer->encode("ab<mask>"), ElementsAre(2, 7));
  EXPECT_EQ(tokenizer->special_tokens().bos->id, 3);
  EXPECT_EQ(tokenizer->special_tokens().eos->id, 4);
  EXPECT_EQ(tokenizer->special_tokens().unk->id, 5);
  EXPECT_EQ(tokenizer->special_tokens().pad->id, 6);
  EXPECT_EQ(tokenizer->size(), 8);
}

TEST(ByteBpe, AddsRobertasTokensWhereTheClassIsRobertaAndTheFileAddsNone) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", changed_base({{"post_processor", nullptr}}).dump());
  folder.write("config.json", R"({"model_type": "roberta"})");
  EXPECT_EQ(load_tokenizer(folder.path())->add_special_tokens(Ids{9}), (Ids{0, 9, 2}));
}

TEST(ByteBpe, GivesItsFilesBackAsTheyWere) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", golden_text("base.json"));
  folder.write("tokenizer_config.json", golden_text("base_config.json"));
  const auto files = load_tokenizer(folder.path())->files();
  EXPECT_THAT(files,
              ::testing::UnorderedElementsAre(
                  ::testing::Pair("tokenizer.json", golden_text("base.json")),
                  ::testing::Pair("tokenizer_config.json", golden_text("base_config.json"))));
}

TEST(ByteBpe, SkipsUnknownIdsWhenItDecodes) {
  const auto tokenizer = load_changed(Json::object());
  EXPECT_EQ(tokenizer->decode(Ids{-5, 1000000}, false), "");
}

}  // namespace
}  // namespace finetune
