// SPDX-License-Identifier: MIT
#include "finetune/tokenizer/train_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/tokenizer/tokenizer.h"
#include "golden_files.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using testing::golden_json;
using testing::golden_text;
using ::testing::HasSubstr;
using testing::Json;
using testing::TemporaryFolder;

std::string corpus() { return source_dir() + "/tests/fixtures/tokenizer/corpus.txt"; }

std::string file_of(const TrainedVocabulary& vocabulary, const std::string& wanted,
                    std::optional<int64_t> length = std::nullopt) {
  for (const auto& [name, content] : make_tokenizer_files(vocabulary, length)) {
    if (name == wanted) return content;
  }
  return "no such file";
}

template <class Call>
std::string message_of(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(TrainVocabulary, WritesTheFilesThatTransformersWrites) {
  const TrainedVocabulary vocabulary = train_byte_level_bpe({corpus()}, {.vocab_size = 420});
  EXPECT_EQ(file_of(vocabulary, "tokenizer.json"), golden_text("base.json"));
  EXPECT_EQ(file_of(vocabulary, "tokenizer_config.json", 128), golden_text("base_config.json"));
}

TEST(TrainVocabulary, SaysWithTransformersNumberThatNoLengthIsKnown) {
  const TrainedVocabulary vocabulary = train_byte_level_bpe({corpus()}, {.vocab_size = 300});
  EXPECT_THAT(file_of(vocabulary, "tokenizer_config.json"),
              HasSubstr("\"model_max_length\": 1000000000000000019884624838656,\n"));
}

TEST(TrainVocabulary, PutsFurtherSpecialTokensWhereTheyAreNamed) {
  TrainVocabularyOptions options{.vocab_size = 300};
  options.special_tokens = {"<extra>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  const TemporaryFolder folder;
  for (const auto& [name, content] :
       make_tokenizer_files(train_byte_level_bpe({corpus()}, options), {})) {
    folder.write(name, content);
  }
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->token_to_id("<extra>"), 0);
  EXPECT_EQ(tokenizer->special_tokens().mask->id, 5);
  EXPECT_EQ(tokenizer->add_special_tokens(std::vector<int32_t>{9}),
            (std::vector<int32_t>{1, 9, 3}));
  EXPECT_TRUE(tokenizer->is_special(0));
}

TEST(TrainVocabulary, KeepsAllBytesWhereTheVocabularyIsTooSmall) {
  EXPECT_EQ(train_byte_level_bpe({corpus()}, {.vocab_size = 1}).tokens.size(), 261u);
}

TEST(TrainVocabulary, StopsAtPairsThatAreTooRare) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "ab ab cd");
  const TrainedVocabulary vocabulary = train_byte_level_bpe({path}, {.vocab_size = 1000});
  EXPECT_EQ(vocabulary.tokens.size(), 262u);
  EXPECT_EQ(vocabulary.tokens.back(), "ab");
}

TEST(TrainVocabulary, ReadsLinesThatCrossItsBlocks) {
  const TemporaryFolder folder;
  std::string text(1048570, 'x');
  text += " hello\xC4\x89 hello\xC4\x89\n";
  const std::string one = folder.write("one.txt", text);
  const TrainedVocabulary vocabulary = train_byte_level_bpe({one}, {.vocab_size = 300});
  EXPECT_THAT(vocabulary.tokens, ::testing::Contains("ĠhelloÄī"));
}

TEST(TrainVocabulary, NamesTheLineThatIsNotUtf8) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.txt", "good\nb\xFF-\n");
  EXPECT_GOLDEN(message_of(ErrorKind::kData,
                           [&] { (void)train_byte_level_bpe({path}, {.vocab_size = 300}); }));
}

TEST(TrainVocabulary, RefusesMissingAndEmptyFiles) {
  EXPECT_GOLDEN(
      message_of(ErrorKind::kData, [] { (void)train_byte_level_bpe({"/no/such.txt"}, {}); }));
  const TemporaryFolder folder;
  const std::string path = folder.write("empty.txt", "");
  EXPECT_GOLDEN(message_of(ErrorKind::kData, [&] { (void)train_byte_level_bpe({path}, {}); }));
}

TEST(TrainVocabulary, RefusesImpossibleOptions) {
  const auto message = [](TrainVocabularyOptions options) {
    return message_of(ErrorKind::kConfig, [&] { (void)train_byte_level_bpe({corpus()}, options); });
  };
  EXPECT_THAT(message({.vocab_size = 0}), HasSubstr("vocab_size"));
  EXPECT_THAT(message({.vocab_size = 5'000'000}), HasSubstr("vocab_size"));
  EXPECT_THAT(message({.min_frequency = -1}), HasSubstr("min_frequency"));
  EXPECT_GOLDEN(message({.special_tokens = {"<s>"}}));
  EXPECT_GOLDEN(message({.special_tokens = {"<s>", "<s>"}}));
}

TEST(TrainVocabulary, GivesWayToASignal) {
  interrupt::request(SIGTERM);
  EXPECT_THROW((void)train_byte_level_bpe({corpus()}, {}), Interrupted);
  interrupt::reset();
}

}  // namespace
}  // namespace finetune
