// SPDX-License-Identifier: MIT
#include "finetune/data/token_classification_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::shared_ptr<const TokenClassificationDataset> build(const std::string& name,
                                                        const std::string& content,
                                                        TokenClassificationOptions options = {}) {
  const TemporaryFolder folder;
  if (options.labels.empty()) options.labels = LabelMap({"B-X", "I-X", "O"});
  return build_token_classification_dataset({folder.write(name, content)}, testing::ByteTokenizer(),
                                            options);
}

template <class Value>
std::vector<int64_t> numbers(std::span<const Value> values) {
  return {values.begin(), values.end()};
}

// The first byte token of a word is its space.
TEST(TokenClassificationDataset, LabelsTheFirstTokenOfEachWord) {
  const auto data = build("a.conll", "ab B-X\nc O\n");
  EXPECT_THAT(numbers(data->get(0).labels), ElementsAre(-100, 0, -100, -100, 2, -100, -100));
  EXPECT_THAT(numbers(data->words(0)), ElementsAre(-1, 0, 0, 0, 1, 1, -1));
}

TEST(TokenClassificationDataset, LabelsAllTokensWithTheInsideLabel) {
  TokenClassificationOptions options;
  options.label_all_tokens = true;
  const auto data = build("a.conll", "ab B-X\nc O\n", options);
  EXPECT_THAT(numbers(data->get(0).labels), ElementsAre(-100, 0, 1, 1, 2, 2, -100));
}

TEST(TokenClassificationDataset, LosesWordsWithoutTokensAndThoseBehindTheEnd) {
  TokenClassificationOptions options;
  options.max_seq_length = 5;
  const auto data = build(
      "a.jsonl",
      "{\"tokens\": [\"a\", \"\", \"b\", \"c\"], \"ner_tags\": [\"O\", \"B-X\", \"O\", \"O\"]}",
      options);
  EXPECT_THAT(numbers(data->words(0)), ElementsAre(-1, 0, 0, 2, -1));
  EXPECT_THAT(numbers(data->get(0).labels), ElementsAre(-100, 2, -100, 2, -100));
  EXPECT_EQ(data->word_count(0), 4);
}

TEST(TokenClassificationDataset, NeedsNoLabelsToPredict) {
  TokenClassificationOptions options;
  options.labels_required = false;
  EXPECT_THAT(numbers(build("a.conll", "a\n", options)->get(0).labels),
              ElementsAre(-100, -100, -100, -100));
}

TEST(TokenClassificationDataset, NamesPositionAndReasonOfWhatCannotBeUsed) {
  struct Case {
    std::string content, reason;
  };
  for (const Case& c : std::vector<Case>{
           {"{\"tokens\": [\"a\", \"b\"], \"ner_tags\": [\"O\"]}",
            "a.jsonl:1: column 'ner_tags' holds 1 labels for the 2 words of column 'tokens'"},
           {"{\"tokens\": [\"a\"], \"ner_tags\": [\"B-Y\"]}",
            "column 'ner_tags' holds the text 'B-Y', which is no label; the labels are 'B-X', "
            "'I-X', "
            "'O'"},
           {"{\"tokens\": [\"a\", 3], \"ner_tags\": [\"O\", \"O\"]}",
            "column 'tokens' holds the number 3 at place 2"},
           {"{\"tokens\": \"a\", \"ner_tags\": [\"O\"]}", "where a list is expected"},
           {"{\"tokens\": [\"a\"]}", "there is no column of labels"},
       }) {
    EXPECT_THAT(message_of<Error>([&] { static_cast<void>(build("a.jsonl", c.content)); }),
                HasSubstr(c.reason))
        << c.content;
  }
}

}  // namespace
}  // namespace finetune
