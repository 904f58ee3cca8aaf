// SPDX-License-Identifier: MIT
#include "tokenizer/models/char_trie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "support/golden.h"

namespace finetune::tokenizer {
namespace {

using Strings = std::vector<std::pair<std::string_view, int32_t>>;

// Returns sizes and values of the strings that `text` starts with.
std::vector<std::pair<size_t, int32_t>> prefixes(const CharTrie& trie, std::string_view text) {
  std::vector<std::pair<size_t, int32_t>> found;
  size_t at = 0;
  const CharTrie::Step* step = trie.first(utf8::decode(text, at));
  while (step != nullptr) {
    if (step->value >= 0) found.emplace_back(at, step->value);
    step = at < text.size() ? trie.next(*step, utf8::decode(text, at)) : nullptr;
  }
  return found;
}

TEST(CharTrie, FindsNothingWithoutStrings) {
  EXPECT_TRUE(prefixes(CharTrie(), "a").empty());
  EXPECT_TRUE(prefixes(CharTrie(), "\U0001F468").empty());
  EXPECT_TRUE(prefixes(CharTrie(Strings{{"", 1}, {"a\xFF", 2}}, "here"), "a").empty());
}

TEST(CharTrie, TakesTheLastOfEqualStrings) {
  EXPECT_EQ(prefixes(CharTrie(Strings{{"a", 1}, {"a", 2}}, "here"), "ab"),
            (std::vector<std::pair<size_t, int32_t>>{{1, 2}}));
}

// "a" and "\u00A1" have the same low six bits, on which only the first selection is based.
TEST(CharTrie, TellsCharactersWithTheSameLowBitsApart) {
  const CharTrie one(Strings{{"xa", 1}, {"a", 2}}, "here");
  EXPECT_TRUE(prefixes(one, "x\u00A1").empty());
  EXPECT_TRUE(prefixes(one, "\u00A1").empty());
  EXPECT_EQ(prefixes(one, "xa"), (std::vector<std::pair<size_t, int32_t>>{{2, 1}}));
  const Strings strings = {
      {"x\u00E1y", 1}, {"x\u00A1", 2}, {"xb", 3}, {"xa", 4}, {"x\U00010021z", 5}};
  const CharTrie all(strings, "here");
  for (const auto& [string, value] : strings) {
    EXPECT_EQ(prefixes(all, string),
              (std::vector<std::pair<size_t, int32_t>>{{string.size(), value}}));
  }
  EXPECT_TRUE(prefixes(all, "x!").empty());
}

TEST(CharTrie, TakesAsManyCharactersAsThereIsRoomFor) {
  const Strings strings = {{"abc", 1}, {"abd", 2}, {"ab", 3}, {"x", 4}, {"abd", 5}};
  EXPECT_EQ(prefixes(CharTrie(strings, "here", 5), "abd"),
            (std::vector<std::pair<size_t, int32_t>>{{2, 3}, {3, 5}}));
  EXPECT_GOLDEN(testing::message_of<Error>([&] { CharTrie(strings, "here", 4); }));
}

TEST(CharTrie, FindsEveryStringThatATextStartsWith) {
  std::mt19937 generator(1);
  const std::vector<std::string> characters = {"a", "b", "\u00E9", "\u65E5", "\U0001F468"};
  const auto word = [&](size_t longest) {
    std::string text;
    for (size_t i = 1 + generator() % longest; i > 0; --i) text += characters[generator() % 5];
    return text;
  };
  std::map<std::string, int32_t> known;
  for (int32_t i = 0; i < 2000; ++i) known[word(7)] = i;
  const CharTrie trie(Strings(known.begin(), known.end()), "here");
  for (int i = 0; i < 2000; ++i) {
    const std::string text = word(10);
    std::vector<std::pair<size_t, int32_t>> expected;
    for (size_t size = 1; size <= text.size(); ++size) {
      const auto found = known.find(text.substr(0, size));
      if (found != known.end()) expected.emplace_back(size, found->second);
    }
    EXPECT_EQ(prefixes(trie, text), expected) << text;
  }
}

}  // namespace
}  // namespace finetune::tokenizer
