// SPDX-License-Identifier: MIT
// Cached ids of words equal those of the complete pipeline, which encode_with_ranges() always runs.
#include "tokenizer/pipeline/spaced_words.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/tokenizer/tokenizer.h"
#include "finetune/tokenizer/train_sentencepiece.h"
#include "support/paths.h"

namespace finetune {
namespace {

using testing::TemporaryFolder;

const std::string kData = source_dir() + "/tests/fixtures/";

// Characters that may combine with a space, vanish, become a space or be treated as one.
const std::vector<std::string>& parts() {
  static const std::vector<std::string> all = {" ",
                                               " ",
                                               " ",
                                               " ",
                                               "  ",
                                               "\t",
                                               "\n",
                                               "\r",
                                               "\u00A0",
                                               "\u3000",
                                               "\u2028",
                                               "\u200B",
                                               "\u200D",
                                               "\u0301",
                                               "\u0300a",
                                               "\u0903",
                                               "\u0600",
                                               "\uFEFF",
                                               "\u00AD",
                                               "\u2581",
                                               "\u2581a",
                                               "e\u0301",
                                               "\u00E9",
                                               "\uFF21",
                                               "\u00BD",
                                               "\u2026",
                                               "\u1100\u1161",
                                               "\uAC00",
                                               "\u65E5\u672C",
                                               "\uFF76\uFF9E",
                                               "\U0001F468\u200D\U0001F469",
                                               "\U0001F1EF\U0001F1F5",
                                               "\u0130",
                                               "\u00DF",
                                               "The",
                                               "lamp",
                                               "keeper",
                                               "a",
                                               "A",
                                               "lamp.",
                                               "it's",
                                               "3.14",
                                               "--",
                                               "<mask>",
                                               "[SEP]",
                                               "</s>",
                                               std::string(70, 'x'),
                                               "lamplighterlamplighter",
                                               "\x7F",
                                               "\x01",
                                               "_",
                                               "\u00B4",
                                               "\u02DC"};
  return all;
}

void expect_equal_ids(const Tokenizer& tokenizer) {
  std::mt19937 random(7);
  const auto below = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  for (int text = 0; text < 6000; ++text) {
    std::string line;
    for (size_t count = below(9); count > 0; --count) line += parts()[below(parts().size())];
    ASSERT_EQ(tokenizer.encode(line), tokenizer.encode_with_ranges(line).ids)
        << ::testing::PrintToString(line);
  }
}

TEST(SpacedWords, HaveTheIdsOfTheWholePipeline) {
  for (const char* family : {"bert", "xlm-roberta", "big_bird"}) {
    SCOPED_TRACE(family);
    expect_equal_ids(*load_tokenizer(kData + "parity/tasks/" + family + "/tokenizer"));
  }
}

TEST(SpacedWords, HaveTheIdsOfSentencePieceModels) {
  for (const char* rule : {"nmt_nfkc", "nmt_nfkc_cf", "identity"}) {
    for (const auto type :
         {SentencePieceOptions::Type::kUnigram, SentencePieceOptions::Type::kBpe}) {
      SCOPED_TRACE(rule);
      SentencePieceOptions options;
      options.type = type;
      options.vocab_size = 300;
      options.normalization_rule_name = rule;
      const TemporaryFolder folder;
      const std::string model = train_sentencepiece({kData + "text/lighthouse.txt"}, options).model;
      for (const auto& [name, content] : make_sentencepiece_files(model, 512)) {
        folder.write(name, content);
      }
      expect_equal_ids(*load_tokenizer(folder.path()));
    }
  }
}

}  // namespace
}  // namespace finetune
