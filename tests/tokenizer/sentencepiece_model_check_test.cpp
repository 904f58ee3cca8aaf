// SPDX-License-Identifier: MIT
// Hostile models, written byte by byte.
#include "tokenizer/sentencepiece/sentencepiece_model_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "finetune/base/error.h"
#include "golden_files.h"
#include "support/golden.h"

namespace finetune::tokenizer {
namespace {

using finetune::testing::golden_text;
using ::testing::HasSubstr;

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
  return bytes + static_cast<char>(value);
}

std::string field(uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string field(uint64_t number, uint64_t value) { return varint(number << 3) + varint(value); }

std::string little_endian(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string piece(const std::string& text, uint64_t type = 1, float score = -1) {
  return field(1, field(1, text) + varint(2 << 3 | 5) +
                      little_endian(std::bit_cast<uint32_t>(score)) + field(3, type));
}

std::string small_model() { return piece("<unk>", 2) + piece("a") + piece("b"); }

std::string verdict_on(const std::string& model) {
  try {
    (void)check_sentencepiece_model(model, "x/spiece.model");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_GOLDEN(error.what());
    return error.what();
  }
  return "accepted";
}

// Returns normalisation rules: a double array of one block, and the replacements.
std::string charsmap(const std::vector<std::pair<uint32_t, uint32_t>>& units,
                     std::string replacements = std::string("x\0", 2)) {
  std::vector<uint32_t> array(256, 0x80000000u);
  for (const auto& [index, unit] : units) array[index] = unit;
  std::string trie;
  for (const uint32_t unit : array) trie += little_endian(unit);
  return little_endian(1024) + trie + replacements;
}
std::string model_with_charsmap(const std::string& map) {
  return small_model() + field(3, field(2, map));
}
uint32_t unit(uint32_t label, uint32_t offset, bool leaf = false) {
  return label | (leaf ? 0x100u : 0u) | offset << 10;
}

TEST(SentencePieceModelCheck, AcceptsRealModels) {
  EXPECT_EQ(check_sentencepiece_model(golden_text("unigram.model"), "m").pieces.size(), 180U);
  EXPECT_EQ(check_sentencepiece_model(golden_text("bpe.model"), "m").pieces.size(), 220U);
  EXPECT_EQ(verdict_on(small_model()), "accepted");
}

TEST(SentencePieceModelCheck, RefusesPiecesThatTheLibraryDoesNotSurvive) {
  EXPECT_GOLDEN(verdict_on(small_model() + piece(std::string(100'000, 'x'))));
  EXPECT_GOLDEN(verdict_on(small_model() + piece("")));
  EXPECT_THAT(verdict_on(small_model() + piece(std::string("a\0b", 3))), HasSubstr("NUL"));
  EXPECT_GOLDEN(verdict_on(small_model() + piece("\xFF")));
  EXPECT_GOLDEN(verdict_on(small_model() + piece("x", 7)));
  EXPECT_GOLDEN(verdict_on(small_model() + piece("x", 1, std::numeric_limits<float>::quiet_NaN())));
}

TEST(SentencePieceModelCheck, WantsExactlyOneUnknownPiece) {
  EXPECT_GOLDEN(verdict_on(piece("a")));
  EXPECT_GOLDEN(verdict_on(small_model() + piece("<u>", 2)));
  EXPECT_GOLDEN(verdict_on(""));
}

TEST(SentencePieceModelCheck, RefusesDamagedProtobuf) {
  EXPECT_THAT(verdict_on(small_model() + "\x0A\x7F"), HasSubstr("truncated"));
  EXPECT_GOLDEN(verdict_on(small_model() + "\x0A"));
  EXPECT_GOLDEN(verdict_on(small_model() + std::string(11, '\xFF')));
  EXPECT_GOLDEN(verdict_on(small_model() + "\x0B"));
  EXPECT_GOLDEN(verdict_on(small_model() + varint(0)));
  EXPECT_GOLDEN(verdict_on(small_model() + field(1, 5)));
}

TEST(SentencePieceModelCheck, RefusesAnUnknownKindOfModel) {
  EXPECT_GOLDEN(verdict_on(small_model() + field(2, field(3, 9))));
}

TEST(SentencePieceModelCheck, RefusesManyUserDefinedPiecesThatStartOneAnother) {
  std::string model = small_model();
  for (size_t length = 2; length < 34; ++length) model += piece(std::string(length, 'u'), 4);
  EXPECT_EQ(verdict_on(model), "accepted");
  EXPECT_GOLDEN(verdict_on(model + piece(std::string(40, 'u'), 4)));
}

TEST(SentencePieceModelCheck, AcceptsASoundRule) {
  // 'A' (0x41) -> the text at 0: the root's base is 1, the rule's base 2 has the value 0.
  const auto map =
      charsmap({{0, unit(0, 1)}, {1 ^ 0x41, unit(0x41, (1 ^ 0x41) ^ 2, true)}, {2, 0x80000000u}});
  EXPECT_EQ(verdict_on(model_with_charsmap(map)), "accepted");
}

TEST(SentencePieceModelCheck, RefusesRulesThatLeaveTheirTable) {
  EXPECT_GOLDEN(verdict_on(model_with_charsmap(charsmap({{0, unit(0, 100'000)}}))));
  EXPECT_GOLDEN(verdict_on(
      model_with_charsmap(charsmap({{0, unit(0, 1)}, {1 ^ 0x41, unit(0x41, 70'000, true)}}))));
}

TEST(SentencePieceModelCheck, RefusesRulesThatLoop) {
  const uint32_t at = 1 ^ 0x41;
  EXPECT_GOLDEN(
      verdict_on(model_with_charsmap(charsmap({{0, unit(0, 1)}, {at, unit(0x41, at ^ 1, true)}}))));
}

TEST(SentencePieceModelCheck, RefusesARuleWithoutAReplacement) {
  const uint32_t at = 1 ^ 0x41;
  EXPECT_GOLDEN(verdict_on(model_with_charsmap(
      charsmap({{0, unit(0, 1)}, {at, unit(0x41, at ^ 2, true)}, {2, 0x80000000u | 500}}))));
}

TEST(SentencePieceModelCheck, RefusesDeeplyNestedRules) {
  // A chain on the byte 0x80: from base b the next unit is b ^ 0x80, and every step ends a rule.
  std::vector<std::pair<uint32_t, uint32_t>> units = {{0, unit(0, 1)}};
  for (uint32_t base = 1; base < 60; ++base) {
    units.emplace_back(base ^ 0x80, unit(0x80, (base ^ 0x80) ^ (base + 1), true));
  }
  EXPECT_THAT(verdict_on(model_with_charsmap(charsmap(units))), HasSubstr("nest"));
}

TEST(SentencePieceModelCheck, RefusesATableOfImpossibleSize) {
  EXPECT_THAT(verdict_on(model_with_charsmap("abc")), HasSubstr("truncated"));
  EXPECT_GOLDEN(verdict_on(model_with_charsmap(little_endian(1025) + std::string(2000, '\0'))));
  EXPECT_GOLDEN(verdict_on(model_with_charsmap(little_endian(4096) + std::string(2000, '\0'))));
  EXPECT_GOLDEN(verdict_on(model_with_charsmap(std::string((1 << 20) + 1, '\0'))));
  EXPECT_THAT(verdict_on(model_with_charsmap(charsmap({}, "no end"))), HasSubstr("damaged"));
  EXPECT_THAT(verdict_on(model_with_charsmap(charsmap({}, std::string("\xFF\0", 2)))),
              HasSubstr("damaged"));
}

TEST(SentencePieceModelCheck, ReadsEveryAppearanceOfAPart) {
  // Of several normalisers or denormalisers the library uses the last one.
  const std::string bad = field(2, charsmap({{0, unit(0, 100'000)}}));
  EXPECT_THAT(verdict_on(small_model() + field(3, std::string()) + field(3, bad)),
              HasSubstr("outside"));
  EXPECT_THAT(verdict_on(small_model() + field(5, bad)), HasSubstr("outside"));
}

}  // namespace
}  // namespace finetune::tokenizer
