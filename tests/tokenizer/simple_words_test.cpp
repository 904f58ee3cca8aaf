// SPDX-License-Identifier: MIT
// Compares the table of simple characters with normalizer and pre-tokenizer.
#include "tokenizer/pipeline/simple_words.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "finetune/base/utf8.h"
#include "golden_files.h"
#include "tokenizer/pipeline/spaced_words.h"
#include "tokenizer/sentencepiece/sentencepiece_files.h"
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"

namespace finetune::tokenizer {
namespace {

using testing::golden_json;
using testing::golden_text;
using testing::Json;

std::vector<std::string> whole(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer,
                               const std::string& text) {
  NormalizedText normalized(text, 0, false);
  normalizer.apply(normalized);
  std::vector<std::string> parts;
  for (const NormalizedText& word : pre_tokenizer.cut(std::move(normalized))) {
    parts.push_back(word.text());
  }
  return parts;
}

// Compares the simple words among random ones, alone and between spaces. Returns their share.
double compare(const Json& normalizer_json, const Json& pre_tokenizer_json) {
  const Normalizer normalizer(normalizer_json, "test");
  const PreTokenizer pre_tokenizer(pre_tokenizer_json, "test");
  EXPECT_TRUE(SpacedWords::serve(normalizer, pre_tokenizer));
  const SimpleWords simple(normalizer, pre_tokenizer);
  std::mt19937 generator(3);
  std::string text;
  std::vector<size_t> ends;
  constexpr int kWords = 20000;
  int found = 0;
  for (int i = 0; i < kWords; ++i) {
    std::string word;
    for (size_t count = 1 + generator() % 5; count > 0; --count) {
      const char32_t end = generator() % 2 == 0 ? 0x7F : 0x310;
      utf8::append(word, 0x1F + static_cast<char32_t>(generator() % (end - 0x1F)));
    }
    if (word.find(' ') != std::string::npos || !simple.cut(word, text, ends)) continue;
    ++found;
    std::vector<std::string> parts;
    size_t begin = 0;
    for (const size_t end : ends) {
      parts.push_back(text.substr(begin, end - begin));
      begin = end;
    }
    EXPECT_EQ(parts, whole(normalizer, pre_tokenizer, word)) << word;
    const auto around = whole(normalizer, pre_tokenizer, "a");
    parts.insert(parts.begin(), around.begin(), around.end());
    parts.insert(parts.end(), around.begin(), around.end());
    EXPECT_EQ(parts, whole(normalizer, pre_tokenizer, "a " + word + " a")) << word;
  }
  return static_cast<double>(found) / kWords;
}

TEST(SimpleWords, AreThoseOfBertsParts) {
  for (const bool lowercase : {false, true}) {
    for (const bool accents : {false, true}) {
      const Json normalizer = {{"type", "BertNormalizer"},
                               {"clean_text", true},
                               {"handle_chinese_chars", true},
                               {"strip_accents", accents},
                               {"lowercase", lowercase}};
      EXPECT_GT(compare(normalizer, {{"type", "BertPreTokenizer"}}), 0.5);
    }
  }
}

const Json kMetaspace = Json::parse(R"({"type": "Metaspace", "replacement": "▁",
                                        "prepend_scheme": "always", "split": true})");
const Json kSplit = Json::parse(R"({"type": "WhitespaceSplit"})");

Json sequence(const char* key, const Json& items) {
  Json json = {{"type", "Sequence"}};
  json[key] = items;
  return json;
}

TEST(SimpleWords, AreThoseOfSentencePiecesParts) {
  const std::string model = golden_text("unigram.model");
  const Json charsmap = charsmap_json(check_sentencepiece_model(model, "test").charsmap);
  EXPECT_GT(compare(charsmap, sequence("pretokenizers", Json::array({kSplit, kMetaspace}))), 0.3);
  const Json spaces =
      Json::parse(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})");
  const Json strip = Json::parse(R"({"type":"Strip","strip_left":true,"strip_right":true})");
  const Json prepend = Json::parse(R"({"type":"Prepend","prepend":"▁"})");
  Json metaspace = kMetaspace;
  metaspace["prepend_scheme"] = "never";
  EXPECT_GT(
      compare(sequence("normalizers", Json::array({charsmap, spaces, strip, prepend})), metaspace),
      0.3);
}

TEST(SimpleWords, AreNoneWhereLettersChange) {
  const Json charsmap = {{"type", "Precompiled"},
                         {"precompiled_charsmap", golden_json("charsmap.json")["map"]}};
  EXPECT_EQ(compare(charsmap, sequence("pretokenizers", Json::array({kSplit, kMetaspace}))), 0);
}

}  // namespace
}  // namespace finetune::tokenizer
