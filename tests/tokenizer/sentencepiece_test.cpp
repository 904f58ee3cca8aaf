// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/error.h"
#include "finetune/tokenizer/tokenizer.h"
#include "golden_files.h"

namespace finetune {
namespace {

using testing::golden_json;
using testing::golden_text;
using testing::Json;
using testing::TemporaryFolder;

using Ids = std::vector<int32_t>;

class SentencePiece : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, GivesTheIdsOfTheLibrary) {
  const TemporaryFolder folder;
  folder.write("spiece.model", golden_text(GetParam() + std::string(".model")));
  const auto tokenizer = load_tokenizer(folder.path());
  const Json goldens = golden_json("sentencepiece.json");
  for (const Json& row : goldens[GetParam()]) {
    const std::string text = row["text"];
    if (text.find("<s>") != std::string::npos || text.find("</s>") != std::string::npos) continue;
    EXPECT_EQ(tokenizer->encode(text), Ids(row["ids"])) << row["text"];
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePiece, ::testing::Values("unigram", "bpe"));

// Compares with transformers' class of this name for unigram.model.
class SentencePieceClass : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = golden_json("pipelines.json")[GetParam()];
    folder_.write(golden_["file"].get<std::string>(), golden_text("unigram.model"));
    folder_.write("tokenizer_config.json",
                  std::string(R"({"tokenizer_class": ")") + GetParam() + "\"}");
    tokenizer_ = load_tokenizer(folder_.path());
  }

  Json golden_;
  TemporaryFolder folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

void expect_rows(const Tokenizer& tokenizer, const Json& rows) {
  ASSERT_GT(rows.size(), 100U);
  for (const Json& row : rows) {
    const Tokens tokens = tokenizer.encode_with_ranges(row[0].get<std::string>());
    EXPECT_EQ(tokens.ids, Ids(row[1])) << row[0];
    std::vector<int64_t> ranges;
    for (const TextRange& range : tokens.ranges) {
      ranges.insert(ranges.end(), {range.begin, range.end});
    }
    EXPECT_EQ(ranges, row[2].get<std::vector<int64_t>>()) << row[0];
    EXPECT_EQ(tokenizer.encode(row[0].get<std::string>()), Ids(row[1])) << row[0];
    EXPECT_EQ(tokenizer.decode(Ids(row[1]), false), row[3]) << row[0];
  }
}

TEST_P(SentencePieceClass, GivesTheIdsRangesAndTextsOfTransformers) {
  expect_rows(*tokenizer_, golden_["rows"]);
}

TEST_P(SentencePieceClass, NumbersItsSpecialTokens) {
  EXPECT_EQ(tokenizer_->size(), golden_["size"].get<int64_t>());
  const Json& special = golden_["special"];
  const SpecialTokens& ours = tokenizer_->special_tokens();
  EXPECT_EQ(ours.bos->id, special["bos_token"].get<int32_t>());
  EXPECT_EQ(ours.eos->id, special["eos_token"].get<int32_t>());
  EXPECT_EQ(ours.unk->id, special["unk_token"].get<int32_t>());
  EXPECT_EQ(ours.sep->id, special["sep_token"].get<int32_t>());
  EXPECT_EQ(ours.pad->id, special["pad_token"].get<int32_t>());
  EXPECT_EQ(ours.cls->id, special["cls_token"].get<int32_t>());
  EXPECT_EQ(ours.mask->id, special["mask_token"].get<int32_t>());
}

TEST_P(SentencePieceClass, JoinsAPair) {
  const Ids first = tokenizer_->encode("La suno");
  const ModelText pair = tokenizer_->combine(first, tokenizer_->encode("la maro"));
  EXPECT_EQ(pair.ids, Ids(golden_["pair"]));
  EXPECT_FALSE(golden_["token_types"].get<bool>());
  EXPECT_THAT(pair.token_types, ::testing::Each(0));
}

TEST_P(SentencePieceClass, EncodesWordsOfASplitText) {
  for (const Json& row : golden_["words"]) {
    EXPECT_EQ(tokenizer_->encode_word(row[0].get<std::string>()), Ids(row[1])) << row[0];
  }
}

TEST_P(SentencePieceClass, KeepsTheModelAmongItsFiles) {
  const std::pair<std::string, std::string> file(golden_["file"].get<std::string>(),
                                                 golden_text("unigram.model"));
  EXPECT_THAT(tokenizer_->files(), ::testing::Contains(file));
}

INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceClass,
                         ::testing::Values("XLMRobertaTokenizer", "BigBirdTokenizer"));

TEST(TokenizerJson, RunsUnigramWithByteFallback) {
  const Json golden = golden_json("pipelines.json")["Unigram"];
  const TemporaryFolder folder;
  folder.write("tokenizer.json", golden["tokenizer"].dump());
  expect_rows(*load_tokenizer(folder.path()), golden["rows"]);
}

TEST(TokenizerJson, RunsBpeWithByteFallback) {
  const Json golden = golden_json("pipelines.json")["BPE"];
  const TemporaryFolder folder;
  folder.write("tokenizer.json", golden["tokenizer"].dump());
  expect_rows(*load_tokenizer(folder.path()), golden["rows"]);
}

TEST(SentencePieceTokenizer, ReadsWhatTransformersMadeOfXlmRoberta) {
  const TemporaryFolder folder;
  folder.write("sentencepiece.bpe.model", golden_text("unigram.model"));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  const auto tokenizer = load_tokenizer(folder.path());
  const Json goldens = golden_json("sentencepiece.json");
  EXPECT_EQ(tokenizer->size(), goldens["xlm_roberta_size"].get<int64_t>());
  for (const Json& row : goldens["xlm_roberta"]) {
    const Ids ids = tokenizer->add_special_tokens(tokenizer->encode(std::string(row["text"])));
    EXPECT_EQ(ids, Ids(row["ids"])) << row["text"];
    EXPECT_EQ(tokenizer->decode(ids, true), row["decoded"]) << row["text"];
  }
}

TEST(SentencePieceTokenizer, FindsItsSpecialTokensInTheModel) {
  const TemporaryFolder folder;
  folder.write("spiece.model", golden_text("unigram.model"));
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->special_tokens().unk->text, "<unk>");
  EXPECT_EQ(tokenizer->special_tokens().unk->id, 0);
  EXPECT_EQ(tokenizer->special_tokens().eos->id, 2);
  EXPECT_FALSE(tokenizer->special_tokens().mask);
  EXPECT_EQ(tokenizer->token_to_id("no such piece"), std::nullopt);
}

TEST(SentencePieceTokenizer, RefusesEveryTruncationWithoutACrash) {
  const std::string model = golden_text("unigram.model");
  for (const char* config : {"{}", R"({"tokenizer_class": "BigBirdTokenizer"})"}) {
    const TemporaryFolder folder;
    folder.write("tokenizer_config.json", config);
    for (size_t size = 0; size < model.size(); size += 37) {
      folder.write("spiece.model", model.substr(0, size));
      try {
        (void)load_tokenizer(folder.path())->encode("La suno");
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
      }
    }
  }
}

}  // namespace
}  // namespace finetune
