// SPDX-License-Identifier: MIT
#include "task/token_classification/entity_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

using ::testing::ElementsAre;

const std::vector<std::string> kLabels = {"O", "B-PER", "I-PER", "B-LOC"};

// A token at [place, place + 1): `label` has the score, the other labels share the rest.
TaggedToken token(int64_t position, size_t label, float score, bool is_subword = false) {
  TaggedToken token{
      .index = position, .start = position, .end = position + 1, .is_subword = is_subword};
  token.scores.assign(kLabels.size(), (1.0F - score) / 3.0F);
  token.scores[label] = score;
  return token;
}

std::vector<std::string> found(const std::vector<TaggedToken>& tokens, Aggregation aggregation) {
  std::vector<std::string> all;
  for (const EntityGroup& entity : find_entities(tokens, aggregation, kLabels, {"O"})) {
    all.push_back(entity.label + " " + std::to_string(entity.start) + "-" +
                  std::to_string(entity.end));
  }
  return all;
}

TEST(Entities, AreTheTokensThemselvesWithoutAggregation) {
  const std::vector<TaggedToken> tokens = {token(0, 1, 0.9F), token(1, 0, 0.9F), token(2, 2, 0.9F)};
  EXPECT_THAT(found(tokens, Aggregation::kNone), ElementsAre("B-PER 0-1", "I-PER 2-3"));
}

TEST(Entities, EndWhereALabelBeginsOrChanges) {
  const std::vector<TaggedToken> tokens = {token(0, 1, 0.9F), token(1, 2, 0.9F), token(2, 1, 0.9F),
                                           token(3, 3, 0.9F), token(4, 0, 0.9F), token(5, 2, 0.9F)};
  EXPECT_THAT(found(tokens, Aggregation::kSimple),
              ElementsAre("PER 0-2", "PER 2-3", "LOC 3-4", "PER 5-6"));
}

TEST(Entities, HaveTheMeanScoreOfTheirParts) {
  const std::vector<TaggedToken> tokens = {token(0, 1, 0.9F), token(1, 2, 0.7F)};
  const auto entities = find_entities(tokens, Aggregation::kSimple, kLabels, {});
  ASSERT_EQ(entities.size(), 1U);
  EXPECT_NEAR(entities[0].score, 0.8, 1e-6);
  EXPECT_EQ(entities[0].tokens.size(), 2U);
}

// "Lon" is uncertain, "##don" is certainly a place.
TEST(Entities, LetAWordHaveOneLabel) {
  const std::vector<TaggedToken> tokens = {token(0, 1, 0.5F), token(1, 3, 0.9F, true),
                                           token(2, 0, 0.9F)};
  EXPECT_THAT(found(tokens, Aggregation::kSimple), ElementsAre("PER 0-1", "LOC 1-2"));
  EXPECT_THAT(found(tokens, Aggregation::kFirst), ElementsAre("PER 0-2"));
  EXPECT_THAT(found(tokens, Aggregation::kMax), ElementsAre("LOC 0-2"));
  EXPECT_THAT(found(tokens, Aggregation::kAverage), ElementsAre("LOC 0-2"));
}

TEST(Entities, LeaveOutWhatIsIgnored) {
  const std::vector<TaggedToken> tokens = {token(0, 1, 0.9F), token(1, 0, 0.9F)};
  EXPECT_EQ(find_entities(tokens, Aggregation::kNone, kLabels, {}).size(), 2U);
  EXPECT_TRUE(find_entities(tokens, Aggregation::kNone, kLabels, {"O", "B-PER"}).empty());
  EXPECT_TRUE(find_entities({}, Aggregation::kFirst, kLabels, {"O"}).empty());
}

}  // namespace
}  // namespace finetune
