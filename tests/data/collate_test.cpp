// SPDX-License-Identifier: MIT
#include "finetune/data/collate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/token_dataset.h"

namespace finetune {
namespace {

using testing::ByteTokenizer;
using ::testing::Each;
using ::testing::ElementsAre;

TokenDataset labelled() {
  return TokenDataset({.ids = {0, 50, 2, 0, 60, 61, 62, 2},
                       .offsets = {0, 3, 8},
                       .labels = {-100, 9, -100, -100, 8, -100, 7, -100},
                       .masks = {1, 1, 1, 1, 1, 1, 0, 0}});
}

TokenDataset plain() {
  std::vector<int32_t> ids(40, 50);
  return TokenDataset({.ids = ids, .offsets = {0, 10, 40}, .labels = {}, .masks = {}});
}

const std::vector<SampleKey> kBoth = {{.index = 0, .epoch = 1}, {.index = 1, .epoch = 1}};

TEST(Collate, PadsToTheLongestSample) {
  const Batch batch =
      MaskedLmCollator(MaskedLmOptions::from(ByteTokenizer())).collate(labelled(), kBoth);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.length, 5);
  EXPECT_THAT(batch.input_ids, ElementsAre(0, 50, 2, 1, 1, 0, 60, 61, 62, 2));
  EXPECT_THAT(batch.labels, ElementsAre(-100, 9, -100, -100, -100, -100, 8, -100, 7, -100));
  EXPECT_THAT(batch.attention_mask, ElementsAre(1, 1, 1, 0, 0, 1, 1, 1, 0, 0));
  EXPECT_EQ(batch.targets, 3);
  EXPECT_EQ(batch.tokens, 6);
}

TEST(Collate, PadsToTheMaximumLengthOrAMultiple) {
  MaskedLmOptions options = MaskedLmOptions::from(ByteTokenizer());
  options.pad_to_multiple_of = 8;
  EXPECT_EQ(MaskedLmCollator(options).collate(labelled(), kBoth).length, 8);
  options.pad_to_multiple_of = 1;
  options.pad_to_max_length = true;
  options.max_seq_length = 12;
  EXPECT_EQ(MaskedLmCollator(options).collate(labelled(), kBoth).length, 12);
}

TEST(Collate, RoundsALengthToNoMoreThanTheMaximum) {
  MaskedLmOptions options = MaskedLmOptions::from(ByteTokenizer());
  options.pad_to_multiple_of = 8;
  options.max_seq_length = 7;
  EXPECT_EQ(MaskedLmCollator(options).collate(labelled(), kBoth).length, 7);
}

TEST(Collate, MasksSamplesWithoutLabels) {
  const Batch batch =
      MaskedLmCollator(MaskedLmOptions::from(ByteTokenizer())).collate(plain(), kBoth);
  int64_t targets = 0;
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == kIgnoredLabel) continue;
    ++targets;
    EXPECT_EQ(batch.labels[i], 50);
  }
  EXPECT_GT(targets, 0);
  EXPECT_EQ(batch.targets, targets);
  EXPECT_EQ(batch.tokens, 40);
}

TEST(Collate, MasksASampleAlikeInEveryBatch) {
  MaskedLmOptions options = MaskedLmOptions::from(ByteTokenizer());
  const Batch both = MaskedLmCollator(options).collate(plain(), kBoth);
  const Batch alone = MaskedLmCollator(options).collate(plain(), std::span(kBoth).first(1));
  options.pad_to_multiple_of = 64;
  const Batch wide = MaskedLmCollator(options).collate(plain(), kBoth);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(both.input_ids[i], alone.input_ids[i]);
    EXPECT_EQ(both.labels[i], alone.labels[i]);
    EXPECT_EQ(both.labels[i], wide.labels[i]);
  }
}

TEST(Collate, RefusesATokenizerWithoutAMaskToken) {
  EXPECT_THROW(static_cast<void>(MaskedLmOptions::from(ByteTokenizer(/*with_mask=*/false))), Error);
}

TEST(TokenDataset, HasAFingerprintOfItsContentAlone) {
  EXPECT_EQ(plain().fingerprint(), plain().fingerprint());
  std::vector<std::string> fingerprints = {plain().fingerprint(), labelled().fingerprint()};
  std::vector<int32_t> ids(40, 50);
  fingerprints.push_back(TokenDataset({.ids = ids, .offsets = {0, 11, 40}}).fingerprint());
  fingerprints.push_back(
      TokenDataset({.ids = ids, .offsets = {0, 10, 40}, .labels = ids}).fingerprint());
  ids[39] = 51;
  fingerprints.push_back(TokenDataset({.ids = ids, .offsets = {0, 10, 40}}).fingerprint());
  EXPECT_EQ(std::set<std::string>(fingerprints.begin(), fingerprints.end()).size(), 5U);
}

TEST(TokenDataset, KnowsTheLengthOfEverySequence) {
  const TokenDataset data({.ids = {1, 2, 3, 4, 5}, .offsets = {0, 1, 3, 3, 5}, .choices = 2});
  EXPECT_EQ(data.length(0), 1);
  EXPECT_EQ(data.length(0, 1), 2);
  EXPECT_EQ(data.length(1), 0);
  EXPECT_EQ(data.length(1, 1), 2);
}

TEST(TokenSpan, ReadsIdsOf16BitsAsThoseOf32) {
  const std::vector<uint16_t> narrow = {0, 40000, 65535};
  const std::vector<int32_t> wide(narrow.begin(), narrow.end());
  const TokenSpan ids{std::span(narrow)};
  EXPECT_EQ(ids.to_vector(), wide);
  EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.end()), ::testing::ElementsAreArray(wide));
  EXPECT_EQ(ids.back(), 65535);
  EXPECT_EQ(ids.size_bytes(), 6U);
  EXPECT_EQ(TokenSpan(wide).size_bytes(), 12U);
}

TEST(TokenSpan, ReadsIdsOfThreeBytesAsThoseOf32Bits) {
  const std::vector<int32_t> wide = {0, 255, 256, 65536, 151643, 0x123456, PackedId::kLimit - 1};
  std::vector<PackedId> packed;
  for (const int32_t id : wide) packed.push_back(PackedId::of(id));
  const TokenSpan ids{std::span<const PackedId>(packed)};
  EXPECT_EQ(ids.to_vector(), wide);
  EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.end()), ::testing::ElementsAreArray(wide));
  EXPECT_EQ(ids[5], 0x123456);
  EXPECT_EQ(ids.first(2).back(), 255);
  EXPECT_EQ(ids.size_bytes(), 21U);
}

TEST(TokenDataset, RefusesContentThatDoesNotFitTogether) {
  EXPECT_THROW(TokenDataset({.ids = {1, 2}, .offsets = {0, 1}}), std::logic_error);
  EXPECT_THROW(TokenDataset({.ids = {1, 2}, .offsets = {0, 2}, .labels = {1}}), std::logic_error);
  EXPECT_THROW(static_cast<void>(plain().get(2)), std::logic_error);
}

TokenDataset choices_of_two() {
  return TokenDataset({.ids = {0, 5, 2, 0, 2, 0, 6, 7, 2, 0, 2},
                       .offsets = {0, 3, 5, 9, 11},
                       .types = {0, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0},
                       .choices = 2,
                       .classes = {1, -100}});
}

TEST(Collate, KeepsTheChoicesOfASampleTogether) {
  const Batch batch =
      PaddingCollator(PaddingOptions::from(ByteTokenizer())).collate(choices_of_two(), kBoth);
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.choices, 2);
  EXPECT_EQ(batch.size(), 2);
  EXPECT_THAT(batch.input_ids, ElementsAre(0, 5, 2, 1, 0, 2, 1, 1, 0, 6, 7, 2, 0, 2, 1, 1));
  EXPECT_THAT(batch.token_type_ids, ElementsAre(0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch.classes, ElementsAre(1, -100));
  EXPECT_THAT(batch.samples, ElementsAre(0, 1));
  EXPECT_EQ(batch.targets, 1);
  EXPECT_TRUE(batch.labels.empty());
}

TEST(Collate, PadsOnTheLeftAndMovesLabelsAndAnswers) {
  PaddingOptions options = PaddingOptions::from(ByteTokenizer());
  options.pad_left = true;
  const Batch labels = PaddingCollator(options).collate(labelled(), kBoth);
  EXPECT_THAT(labels.input_ids, ElementsAre(1, 1, 0, 50, 2, 0, 60, 61, 62, 2));
  EXPECT_THAT(labels.labels, ElementsAre(-100, -100, -100, 9, -100, -100, 8, -100, 7, -100));
  EXPECT_THAT(labels.attention_mask, ElementsAre(0, 0, 1, 1, 1, 1, 1, 1, 0, 0));
  EXPECT_EQ(labels.targets, 3);
  const TokenDataset answers({.ids = {0, 5, 2, 0, 6, 7, 8, 2},
                              .offsets = {0, 3, 8},
                              .answers = {{.start = 1, .end = 1}, {.start = 1, .end = 2}}});
  const Batch batch = PaddingCollator(options).collate(answers, kBoth);
  EXPECT_THAT(batch.starts, ElementsAre(3, 1));
  EXPECT_THAT(batch.ends, ElementsAre(3, 2));
  EXPECT_EQ(batch.targets, 2);
}

TEST(Collate, CountsEveryValue) {
  const TokenDataset data({.ids = {0, 2, 0, 2},
                           .offsets = {0, 2, 4},
                           .outputs = 2,
                           .values = {1.0F, 0.0F, 0.5F, 2.0F}});
  const Batch batch = PaddingCollator(PaddingOptions::from(ByteTokenizer())).collate(data, kBoth);
  EXPECT_THAT(batch.values, ElementsAre(1.0F, 0.0F, 0.5F, 2.0F));
  EXPECT_EQ(batch.targets, 4);
  EXPECT_EQ(batch.tokens, 4);
}

TEST(CausalLmCollator, GivesEachTokenTheNextOneOfItsSample) {
  const TokenDataset texts({.ids = {7, 8, 9, 50, 60}, .offsets = {0, 3, 4, 5}});
  const std::vector<SampleKey> all = {{.index = 0}, {.index = 1}, {.index = 2}};
  const Batch batch = CausalLmCollator({.pad_id = 1}).collate(texts, all);
  EXPECT_THAT(batch.input_ids, ElementsAre(7, 8, 9, 50, 1, 1, 60, 1, 1));
  EXPECT_THAT(batch.labels, ElementsAre(8, 9, -100, -100, -100, -100, -100, -100, -100));
  EXPECT_EQ(batch.targets, 2);
  EXPECT_EQ(batch.tokens, 5);
}

TEST(CausalLmCollator, ShiftsTheLabelsThatSamplesBring) {
  const Batch batch = CausalLmCollator({.pad_id = 1}).collate(labelled(), kBoth);
  EXPECT_THAT(batch.labels, ElementsAre(9, -100, -100, -100, -100, 8, -100, 7, -100, -100));
  EXPECT_EQ(batch.targets, 3);
}

TEST(CausalLmCollator, PadsToTheMaximumLengthBehindTheText) {
  const Batch batch =
      CausalLmCollator({.pad_id = 1, .pad_to_max_length = true, .max_seq_length = 12})
          .collate(plain(), std::span(kBoth).first(1));
  EXPECT_EQ(batch.length, 12);
  EXPECT_EQ(batch.targets, 9);
  EXPECT_EQ(batch.input_ids[10], 1);
}

}  // namespace
}  // namespace finetune
