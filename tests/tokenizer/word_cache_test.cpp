// SPDX-License-Identifier: MIT
#include "tokenizer/models/word_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace finetune::tokenizer {
namespace {

TEST(WordKey, IsTheWordItselfUpToItsWholeBytes) {
  std::mt19937 generator(1);
  for (size_t size = 1; size <= WordKey::kWholeBytes; ++size) {
    std::string word(size, 'a');
    for (char& c : word) c = static_cast<char>(generator());
    const WordKey key(word);
    for (size_t at = 0; at < size; ++at) {
      std::string other = word;
      other[at] = static_cast<char>(other[at] + 1);
      const WordKey found(other);
      EXPECT_FALSE(found.first == key.first && found.second == key.second) << size << " " << at;
    }
  }
}

// Words of every size and number of values, more than fit into the cache.
TEST(WordCache, GivesWhatWasPutInUntilItStartsAnew) {
  WordCache<int32_t> cache;
  cache.use_for(1);
  std::map<std::string, std::vector<int32_t>> all;
  std::mt19937 generator(2);
  size_t starts = 0;
  for (int32_t i = 0; i < 80000; ++i) {
    std::string word = std::to_string(i);
    word.resize(std::max(word.size(), 1 + generator() % 64), 'x');
    const WordKey key(word);
    if (cache.find(word, key)) continue;
    const std::vector<int32_t> values(generator() % 9, i);
    const bool knew = i > 0 && cache.find(all.begin()->first, WordKey(all.begin()->first));
    cache.insert(word, key, values);
    all[word] = values;
    if (knew && !cache.find(all.begin()->first, WordKey(all.begin()->first))) ++starts;
    const auto found = cache.find(word, key);
    ASSERT_TRUE(found);
    EXPECT_EQ(std::vector<int32_t>(found->begin(), found->end()), values);
  }
  size_t known = 0;
  for (const auto& [word, values] : all) {
    const auto found = cache.find(word, WordKey(word));
    if (!found) continue;
    ++known;
    EXPECT_EQ(std::vector<int32_t>(found->begin(), found->end()), values) << word;
  }
  EXPECT_LE(starts, 1U);
  EXPECT_GT(known, 10000U);
  EXPECT_LE(known, 65536U);
}

TEST(WordCache, ForgetsAnotherOwnersWords) {
  WordCache<int32_t> cache;
  cache.use_for(1);
  cache.insert("a", WordKey("a"), std::vector<int32_t>{7});
  cache.use_for(1);
  EXPECT_TRUE(cache.find("a", WordKey("a")));
  cache.use_for(2);
  EXPECT_FALSE(cache.find("a", WordKey("a")));
}

}  // namespace
}  // namespace finetune::tokenizer
