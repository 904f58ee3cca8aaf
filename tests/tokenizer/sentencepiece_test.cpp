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

TEST(SentencePieceTokenizer, NumbersXlmRobertaAsTransformersDoes) {
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
  EXPECT_EQ(tokenizer->special_tokens().mask->id, tokenizer->size() - 1);
  EXPECT_EQ(tokenizer->special_tokens().pad->id, 1);
  EXPECT_EQ(tokenizer->id_to_token(3), "<unk>");
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
  const TemporaryFolder folder;
  for (size_t size = 0; size < model.size(); size += 37) {
    folder.write("spiece.model", model.substr(0, size));
    try {
      (void)load_tokenizer(folder.path())->encode("La suno");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
    }
  }
}

}  // namespace
}  // namespace finetune
