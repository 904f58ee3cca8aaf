// SPDX-License-Identifier: MIT
#include "finetune/data/drawn_negatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "data/byte_tokenizer.h"
#include "finetune/data/batch.h"
#include "finetune/data/collate.h"

namespace finetune {
namespace {

using testing::ByteTokenizer;

const ByteTokenizer& tokenizer() {
  static const ByteTokenizer instance;
  return instance;
}

// Sample i has the query "q<i>" and these documents.
std::shared_ptr<const TokenDataset> texts(const std::vector<std::vector<std::string>>& documents) {
  TokenContent content;
  content.choices = 1 + std::ssize(documents.front());
  const auto add = [&](const std::string& text) {
    const std::vector<int32_t> ids = tokenizer().encode(text);
    content.ids.insert(content.ids.end(), ids.begin(), ids.end());
    content.offsets.push_back(std::ssize(content.ids));
  };
  for (size_t i = 0; i < documents.size(); ++i) {
    add("q" + std::to_string(i));
    for (const std::string& document : documents[i]) add(document);
  }
  return std::make_shared<const TokenDataset>(std::move(content));
}

DrawnNegatives drawn(const std::vector<std::vector<std::string>>& documents, int64_t count,
                     int64_t max_length = 64) {
  SampleOptions options;
  options.max_seq_length = max_length;
  options.vocabulary_limit = 300;
  return {texts(documents), tokenizer(), options, count, 7};
}

std::vector<std::string> pairs(const DrawnNegatives& data, const SampleKey& key) {
  TokenContent content;
  data.add_pairs(key, content);
  std::vector<std::string> found;
  for (size_t i = 1; i < content.offsets.size(); ++i) {
    const std::vector<int32_t> ids(content.ids.begin() + content.offsets[i - 1],
                                   content.ids.begin() + content.offsets[i]);
    found.push_back(tokenizer().decode(ids, true));
  }
  return found;
}

TEST(DrawnNegatives, AreOtherSamplesDocumentsEachOnceAndOthersInTheNextEpoch) {
  std::vector<std::vector<std::string>> documents;
  for (char c = 'a'; c <= 'z'; ++c) documents.push_back({std::string(1, c), std::string(2, c)});
  const DrawnNegatives data = drawn(documents, 8);
  EXPECT_EQ(data.choices(), 10);
  std::set<std::vector<std::string>> of_epochs;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    for (int64_t sample = 0; sample < data.size(); ++sample) {
      const std::vector<std::string> found = pairs(data, {sample, epoch});
      ASSERT_EQ(found.size(), 10U);
      const std::string query = "q" + std::to_string(sample);
      EXPECT_EQ(found[0], query + documents[static_cast<size_t>(sample)][0]);
      EXPECT_EQ(found[1], query + documents[static_cast<size_t>(sample)][1]);
      EXPECT_EQ(std::set<std::string>(found.begin(), found.end()).size(), 10U);
      EXPECT_EQ(found, pairs(data, {sample, epoch}));
      if (sample == 3) of_epochs.insert(found);
    }
  }
  EXPECT_EQ(of_epochs.size(), 4U);
}

TEST(DrawnNegatives, TakeAllDocumentsWhereThereAreNoMore) {
  const DrawnNegatives data = drawn({{"a"}, {"b"}, {"c"}}, 9);
  EXPECT_THAT(pairs(data, {1, 0}), ::testing::UnorderedElementsAre("q1b", "q1a", "q1c"));
}

// Questions about the same text.
TEST(DrawnNegatives, PassOverDocumentsThatAreEqualToTheSamplesOwn) {
  const DrawnNegatives data = drawn({{"a"}, {"a"}, {"a"}, {"a"}, {"b"}, {"c"}}, 2);
  for (int64_t epoch = 0; epoch < 9; ++epoch) {
    EXPECT_THAT(pairs(data, {0, epoch}), ::testing::UnorderedElementsAre("q0a", "q0b", "q0c"));
  }
}

TEST(DrawnNegatives, HaveNoLabelWhereOnlyEqualDocumentsAreLeft) {
  const DrawnNegatives data = drawn({{"a"}, {"a"}, {"a"}, {"b"}}, 3);
  TokenContent content;
  data.add_pairs({0, 0}, content);
  ASSERT_EQ(content.values.size(), 4U);
  EXPECT_EQ(content.values[0], 1.0F);
  EXPECT_EQ(std::ranges::count(content.values, 0.0F), 1);  // "b"
  EXPECT_EQ(std::ranges::count_if(content.values, [](float v) { return std::isnan(v); }), 2);
}

TEST(DrawnNegatives, AreCollatedAsPairsOfTheDatasetsSamples) {
  const DrawnNegatives data = drawn({{"some words"}, {"other words"}, {"more"}}, 1, 12);
  const auto padding = std::make_shared<const PaddingCollator>(PaddingOptions::from(tokenizer()));
  const std::vector<SampleKey> keys = {{2, 1}, {0, 1}};
  const Batch batch = make_drawn_negatives_collator(padding)->collate(data, keys);
  EXPECT_EQ(batch.choices, 2);
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.samples, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(batch.length, 12);
  EXPECT_LE(batch.length, data.longest());
  int64_t row = 0;
  for (const SampleKey& key : keys) {
    for (const std::string& pair : pairs(data, key)) {
      const auto begin = batch.input_ids.begin() + row++ * batch.length;
      std::vector<int32_t> ids;
      std::copy_if(begin, begin + batch.length, std::back_inserter(ids),
                   [](int64_t id) { return id != ByteTokenizer::kPad; });
      EXPECT_EQ(tokenizer().decode(ids, true), pair);
    }
  }
}

}  // namespace
}  // namespace finetune
