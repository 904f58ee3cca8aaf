// SPDX-License-Identifier: MIT
// Compares every kind of component with the results of the tokenizers package.
#include "tokenizer/pipeline/pipeline_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "finetune/base/error.h"
#include "finetune/tokenizer/tokenizer.h"
#include "golden_files.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::golden_json;
using testing::golden_text;
using testing::Json;
using testing::TemporaryFolder;

using Ids = std::vector<int32_t>;

// Converts ranges to the goldens' format: two numbers per token, in code points.
std::vector<int64_t> in_code_points(const std::vector<TextRange>& ranges, const std::string& text) {
  std::vector<int64_t> numbers;
  const auto count = [&](int64_t end) {
    return std::count_if(text.begin(), text.begin() + end,
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  };
  for (const TextRange& range : ranges) {
    numbers.push_back(count(range.begin));
    numbers.push_back(count(range.end));
  }
  return numbers;
}

std::shared_ptr<const Tokenizer> load_json(const Json& json) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", json.dump());
  return load_tokenizer(folder.path());
}

constexpr size_t kCases = 33;

class ComponentCase : public ::testing::TestWithParam<size_t> {
 protected:
  static const Json& goldens() {
    static const Json kGoldens = golden_json("components.json");
    return kGoldens;
  }
  [[nodiscard]] static const Json& golden() { return goldens()["cases"][GetParam()]; }
  [[nodiscard]] static std::string text(size_t i) { return goldens()["texts"][i]; }
};

TEST_P(ComponentCase, GivesTheIdsAndOffsetsOfTheTokenizersPackage) {
  ASSERT_EQ(goldens()["cases"].size(), kCases);
  const auto tokenizer = load_json(golden()["tokenizer"]);
  for (size_t i = 0; i < goldens()["texts"].size(); ++i) {
    SCOPED_TRACE(std::string(golden()["name"]) + ": '" + text(i) + "'");
    const Ids expected = golden()["ids"][i];
    const Tokens tokens = tokenizer->encode_with_ranges(text(i));
    EXPECT_EQ(tokens.ids, expected);
    EXPECT_EQ(tokenizer->encode(text(i)), expected);
    EXPECT_EQ(in_code_points(tokens.ranges, text(i)), std::vector<int64_t>(golden()["offsets"][i]));
  }
}

TEST_P(ComponentCase, CombinesAndDecodesPairsAsTheTokenizersPackage) {
  const auto tokenizer = load_json(golden()["tokenizer"]);
  for (size_t i = 0; i + 1 < goldens()["texts"].size(); ++i) {
    SCOPED_TRACE(std::string(golden()["name"]) + ": '" + text(i) + "'");
    const Ids first = tokenizer->encode(text(i));
    const Ids second = tokenizer->encode(text(i + 1));
    const ModelText both = tokenizer->combine(first, second);
    EXPECT_EQ(both.ids, Ids(golden()["pair_ids"][i]));
    std::string types;
    for (const uint8_t type : both.token_types) types += static_cast<char>('0' + type);
    EXPECT_EQ(types, golden()["pair_types"][i]);
    EXPECT_EQ(static_cast<int64_t>(both.ids.size() - first.size() - second.size()),
              tokenizer->num_special_tokens_to_add(true));
    EXPECT_EQ(tokenizer->decode(both.ids, false), golden()["decoded"][i]);
    if (i < golden()["skipped"].size()) {
      EXPECT_EQ(tokenizer->decode(both.ids, true), golden()["skipped"][i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ComponentCase, ::testing::Range<size_t>(0, kCases));

// A normalizer that changes nothing, but of which only the general way through the parts knows.
const Json kNothing = {{"type", "Replace"}, {"pattern", {{"String", "\u0001"}}}, {"content", "x"}};

TEST(Ranges, OfViewsIntoTheTextEqualThoseOfCopies) {
  const std::vector<std::string> parts = {"lamp",    " keeper", " ",           "\n\n",  "é",
                                          "e\u0301", "朝",      "👩‍🚀", " it's", "12",
                                          "</s>",    "<mask>",  "\u00A0",      "ｋ"};
  std::mt19937 random(7);
  const auto below = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  for (const char* name : {"causal", "lighthouse", "words"}) {
    for (const char* form : {"", "NFC", "NFKC"}) {
      SCOPED_TRACE(std::string(name) + " " + form);
      Json json =
          read_json_file(source_dir() + "/tests/fixtures/tokenizers/" + name + "/tokenizer.json");
      const Json step = *form == 0 ? Json(nullptr) : Json{{"type", form}};
      json["normalizer"] = step;
      const auto quick = load_json(json);
      json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {kNothing}}};
      if (!step.is_null()) json["normalizer"]["normalizers"].push_back(step);
      const auto general = load_json(json);
      for (int i = 0; i < 1000; ++i) {
        std::string text;
        for (size_t count = below(9); count > 0; --count) text += parts[below(parts.size())];
        const Tokens tokens = quick->encode_with_ranges(text);
        const Tokens expected = general->encode_with_ranges(text);
        ASSERT_EQ(tokens.ids, expected.ids) << text;
        ASSERT_EQ(tokens.ranges, expected.ranges) << text;
      }
    }
  }
}

constexpr const char* kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nla\n##mp\nLa\ncafe\ncafé\n朝\n";

std::shared_ptr<const Tokenizer> load_vocab_txt(const std::string& config,
                                                const std::string& vocabulary = kVocabulary) {
  const TemporaryFolder folder;
  folder.write("vocab.txt", vocabulary);
  if (!config.empty()) folder.write("tokenizer_config.json", config);
  return load_tokenizer(folder.path());
}

TEST(VocabTxt, LowersAndStripsAccentsUnlessTheConfigSaysOtherwise) {
  EXPECT_THAT(load_vocab_txt("")->encode("Lamp café"), ElementsAre(5, 6, 8));
  EXPECT_THAT(load_vocab_txt(R"({"do_lower_case": false})")->encode("Lamp café"),
              ElementsAre(7, 6, 9));
  EXPECT_THAT(load_vocab_txt(R"({"strip_accents": false})")->encode("Lamp CAFÉ"),
              ElementsAre(5, 6, 9));
}

TEST(VocabTxt, CutsIdeographsUnlessTheConfigSaysOtherwise) {
  EXPECT_THAT(load_vocab_txt("")->encode("朝朝"), ElementsAre(10, 10));
  EXPECT_THAT(load_vocab_txt(R"({"tokenize_chinese_chars": false})")->encode("朝朝"),
              ElementsAre(1));
}

TEST(VocabTxt, PutsClsAndSepAroundOneTextAndTwo) {
  const auto tokenizer = load_vocab_txt("");
  const ModelText text = tokenizer->combine(Ids{5}, Ids{8, 9});
  EXPECT_THAT(text.ids, ElementsAre(2, 5, 3, 8, 9, 3));
  EXPECT_THAT(text.token_types, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(text.texts, ElementsAre(-1, 0, -1, 1, 1, -1));
  EXPECT_THAT(text.tokens, ElementsAre(-1, 0, -1, 0, 1, -1));
  EXPECT_EQ(tokenizer->special_tokens().mask->id, 4);
}

TEST(VocabTxt, KeepsTheLastOfEqualLines) {
  const auto tokenizer = load_vocab_txt("", std::string(kVocabulary) + "la \n");
  EXPECT_THAT(tokenizer->encode("la"), ElementsAre(11));
  EXPECT_EQ(tokenizer->id_to_token(5), "");
}

TEST(PipelineTokenizer, KnowsWhatContinuesAWord) {
  const auto bert = load_vocab_txt("");
  EXPECT_TRUE(bert->continues_word(6));
  EXPECT_FALSE(bert->continues_word(5));
  EXPECT_FALSE(bert->continues_word(4));
  const auto roberta = load_json(golden_json("base.json"));
  EXPECT_TRUE(roberta->continues_word(*roberta->token_to_id("a")));
  EXPECT_FALSE(roberta->continues_word(*roberta->token_to_id("Ġ")));
}

TEST(PipelineTokenizer, PutsASpaceBeforeAWordForByteLevelBpe) {
  const auto roberta = load_json(golden_json("base.json"));
  EXPECT_EQ(roberta->encode_word("suno"), roberta->encode(" suno"));
  EXPECT_NE(roberta->encode_word("suno"), roberta->encode("suno"));
  EXPECT_TRUE(roberta->encode_word("").empty());
  EXPECT_EQ(load_vocab_txt("")->encode_word("Lamp"), (Ids{5, 6}));
}

TEST(PipelineTokenizer, ReadsTheSidesOfItsConfigOrOfTokenizerJson) {
  const auto sides =
      load_vocab_txt(R"({"padding_side": "left", "truncation_side": "left"})")->sides();
  EXPECT_TRUE(sides.pad_left && sides.truncate_left);
  Json json = golden_json("base.json");
  EXPECT_FALSE(load_json(json)->sides().truncate_left);
  json["truncation"] = {
      {"direction", "Left"}, {"max_length", 8}, {"strategy", "LongestFirst"}, {"stride", 0}};
  EXPECT_TRUE(load_json(json)->sides().truncate_left);
}

TEST(PipelineTokenizer, GivesTokenTypesWhereTheClassHasThem) {
  const TemporaryFolder folder;
  folder.write("vocab.txt", kVocabulary);
  folder.write("tokenizer_config.json", R"({"model_input_names": ["input_ids"]})");
  EXPECT_THAT(load_tokenizer(folder.path())->combine(Ids{5}, Ids{8}).token_types,
              ElementsAre(0, 0, 0, 0, 0));
}

TEST(PipelineTokenizer, BuildsTheClassThatTheConfigNamesAsTransformersDoes) {
  // transformers' RobertaTokenizer uses only the vocabulary of tokenizer.json.
  Json json = golden_json("base.json");
  json["normalizer"] = {{"type", "Lowercase"}};
  json["post_processor"] = nullptr;
  const TemporaryFolder folder;
  folder.write("tokenizer.json", json.dump());
  const auto as_it_says = load_tokenizer(folder.path());
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizerFast"})");
  const auto roberta = load_tokenizer(folder.path());
  EXPECT_EQ(as_it_says->encode("La"), as_it_says->encode("la"));
  EXPECT_NE(roberta->encode("La"), roberta->encode("la"));
  EXPECT_EQ(roberta->add_special_tokens(Ids{9}), (Ids{0, 9, 2}));
}

TEST(PipelineTokenizer, TellsATextThatARegularExpressionTakesTooLongOn) {
  Json json = golden_json("base.json");
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"Regex", "a*a*a*a*a*a*[bc]"}}}, {"content", ""}};
  const auto tokenizer = load_json(json);
  EXPECT_THROW((void)tokenizer->encode(std::string(2000, 'a')), Error);
}

TEST(PipelineTokenizer, TellsReplacesThatMakeATextGrowWithoutEnd) {
  Json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  Json json = golden_json("base.json");
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {step, step, step, step}}};
  EXPECT_THROW((void)load_json(json)->encode("a"), Error);
}

}  // namespace
}  // namespace finetune
