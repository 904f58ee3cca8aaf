// SPDX-License-Identifier: MIT
#include "tokenizer/steps/precompiled_charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "golden_files.h"
#include "support/golden.h"
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"
#include "tokenizer/unicode/grapheme_splitter.h"

namespace finetune::tokenizer {
namespace {

using ::testing::ElementsAre;
using testing::golden_json;
using testing::golden_text;
using testing::Json;

PrecompiledCharsmap golden_map() {
  return PrecompiledCharsmap::from_base64(golden_json("charsmap.json")["map"].get<std::string>(),
                                          "test");
}

TEST(PrecompiledCharsmap, GivesTheTextsOfTheTokenizersPackage) {
  const PrecompiledCharsmap map = golden_map();
  const Json goldens = golden_json("charsmap.json");
  ASSERT_GT(goldens["cases"].size(), 400U);
  for (const Json& row : goldens["cases"]) {
    NormalizedText text(row[0].get<std::string>(), 0, false);
    map.normalize(text);
    EXPECT_EQ(text.text(), row[1].get<std::string>()) << row[0];
  }
}

TEST(PrecompiledCharsmap, KeepsWhereEachCharacterComesFrom) {
  const PrecompiledCharsmap map = golden_map();
  const Json goldens = golden_json("charsmap.json");
  for (const Json& row : goldens["cases"]) {
    NormalizedText text(row[0].get<std::string>(), 0, true);
    map.normalize(text);
    std::vector<uint32_t> origins;
    for (size_t at = 0; at < text.text().size();) {
      const size_t begin = at;
      static_cast<void>(utf8::decode(text.text(), at));
      const auto origin = text.origin(begin, at);
      origins.insert(origins.end(), {origin.begin, origin.end});
    }
    EXPECT_EQ(origins, row[2].get<std::vector<uint32_t>>()) << row[0] << " " << row[1];
  }
}

// Without origins only the neighbourhood of characters with rules is examined.
TEST(PrecompiledCharsmap, GivesTheSameTextWithAndWithoutOrigins) {
  const std::string model = golden_text("unigram.model");
  const PrecompiledCharsmap whole(check_sentencepiece_model(model, "test").charsmap, "test");
  const PrecompiledCharsmap golden = golden_map();
  const std::vector<std::string> characters = {
      "a",      "b",          "A",      "\u65E5", "\u304B", "\u3099", "\u0301", "\u0323",
      "\u00E9", "\uFF21",     "\uFF08", "\uFF76", "\uFF9E", "\u1100", "\u1161", "\u11A8",
      "\uAC00", "\u0915",     "\u094D", "\u0937", "\u0600", "\u200D", "\u00AE", "\r",
      "\n",     "\U0001F468", "\u00AD", "\u3000", " ",      "\u00BD", "\u0F43", "\uFB01"};
  std::mt19937 generator(5);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t count = generator() % 12; count > 0; --count) {
      text += characters[generator() % (i % 2 == 0 ? characters.size() : 12)];
    }
    for (const PrecompiledCharsmap* map : {&whole, &golden}) {
      NormalizedText with(text, 0, true);
      map->normalize(with);
      EXPECT_EQ(map->normalized(text), with.text()) << text;
    }
  }
}

TEST(PrecompiledCharsmap, LeavesTextWithoutRulesAlone) {
  const PrecompiledCharsmap map = golden_map();
  for (const std::string_view text :
       {std::string_view(), std::string_view("x\0y", 3), std::string_view("e \u5d15 x\u0323")}) {
    NormalizedText normalized(text, 0, true);
    map.normalize(normalized);
    EXPECT_EQ(normalized.text(), text);
  }
}

std::string refusal_of_map(const std::string& base64) {
  try {
    static_cast<void>(PrecompiledCharsmap::from_base64(base64, "x/tokenizer.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(PrecompiledCharsmap, RefusesWhatIsNoBase64) {
  for (const char* text : {"AAA", "AA=A", "A===", "AA A", "\u00e9\u00e9\u00e9\u00e9"}) {
    EXPECT_GOLDEN(refusal_of_map(text)) << text;
  }
}

TEST(PrecompiledCharsmap, RefusesEveryTruncation) {
  const std::string map = golden_json("charsmap.json")["map"];
  EXPECT_GOLDEN(refusal_of_map(""));
  for (size_t size = 0; size < map.size(); size += 16) {
    EXPECT_GOLDEN(refusal_of_map(map.substr(0, size))) << size;
  }
}

TEST(PrecompiledCharsmap, SurvivesEveryDamagedByte) {
  const std::string map = golden_json("charsmap.json")["map"];
  for (size_t at = 0; at < map.size(); at += 3) {
    std::string damaged = map;
    damaged[at] = damaged[at] == 'A' ? 'z' : 'A';
    try {
      const auto parsed = PrecompiledCharsmap::from_base64(damaged, "x/tokenizer.json");
      NormalizedText text("aA\u00a9\u0915\u0600e\u0301\uff21\u5d14x\u0323\u0301", 0, true);
      parsed.normalize(text);
    } catch (const Error& error) {
      EXPECT_GOLDEN(error.what());
    }
  }
}

std::vector<std::string> clusters(std::string_view text) {
  std::vector<std::string> all;
  GraphemeSplitter splitter(text);
  while (const auto cluster = splitter.next()) all.emplace_back(*cluster);
  return all;
}

TEST(GraphemeSplitter, CutsByTheRulesOfUnicode) {
  EXPECT_THAT(clusters(""), ElementsAre());
  EXPECT_THAT(clusters("ab\r\n\n"), ElementsAre("a", "b", "\r\n", "\n"));
  EXPECT_THAT(clusters("e\u0301\u0323o"), ElementsAre("e\u0301\u0323", "o"));
  EXPECT_THAT(clusters("\u1100\u1161\u11a8\uac00\u11a8\u1100"),
              ElementsAre("\u1100\u1161\u11a8", "\uac00\u11a8", "\u1100"));
  EXPECT_THAT(clusters("\u0600a"), ElementsAre("\u0600a"));
  EXPECT_THAT(clusters("\u0915\u094d\u0915\u0915"), ElementsAre("\u0915\u094d\u0915", "\u0915"));
  EXPECT_THAT(clusters("\u00a9\u0301\u200d\u00a9\u200d\u00aeb\u200d\u00a9"),
              ElementsAre("\u00a9\u0301\u200d\u00a9\u200d\u00ae", "b\u200d", "\u00a9"));
}

}  // namespace
}  // namespace finetune::tokenizer
