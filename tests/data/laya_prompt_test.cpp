// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/decision_prompt.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Prompts of a tokenizer with a token for each byte; tests/parity compares with laya's.
class LayaPrompts : public ::testing::Test {
 protected:
  [[nodiscard]] DecisionPrompt prompt(const Json& question, const Json& state,
                                      int64_t max_len = 200, int64_t head_max_len = 120) const {
    DecisionSettings settings;
    settings.noul_options = {"false", "true"};
    settings.has_labels = false;
    const auto questions = parse_questions({{"q", question}}, settings);
    const LayaPrompter prompter(tokenizer_, {.max_len = max_len, .head_max_len = head_max_len});
    return prompter.prompt(state, questions);
  }
  // Special tokens as "[", "]" and "^".
  [[nodiscard]] static std::string text(const DecisionPrompt& prompt) {
    using testing::ByteTokenizer;
    std::string text;
    for (const int32_t id : prompt.ids) {
      const bool is_special = id < ByteTokenizer::kFirstByte;
      text += !is_special                  ? static_cast<char>(id - ByteTokenizer::kFirstByte)
              : id == ByteTokenizer::kBos  ? '['
              : id == ByteTokenizer::kMask ? '^'
                                           : ']';
    }
    return text;
  }

  testing::ByteTokenizer tokenizer_;
};

TEST_F(LayaPrompts, HaveAMarkAfterEachMask) {
  const DecisionPrompt noul = prompt({{"type", "noul"}, {"instructions", "ok?"}}, "calm");
  EXPECT_EQ(
      text(noul),
      "[noul question: ok?]^ false: no, the statement does not hold^ true: yes, the statement "
      "holds]calm]");
  EXPECT_THAT(noul.marks, ElementsAre(ElementsAre(21, 61)));
  for (const int64_t mark : noul.marks.front()) {
    EXPECT_EQ(noul.ids[static_cast<size_t>(mark) - 1], testing::ByteTokenizer::kMask);
  }
  const Json choice = {{"type", "choice"},
                       {"instructions", {{"ask", "x"}}},
                       {"criteria", {{"a", nullptr}, {"b", {{"x", 1.5}}}}}};
  EXPECT_EQ(text(prompt(choice, {{"k", {1, nullptr}}})),
            R"([choice question: {"ask": "x"}]^ a^ b: {"x": 1.5}]{"k": [1, null]}])");
  const Json score = {{"type", "score"}, {"instructions", "how?"}, {"criteria", {"low", "high"}}};
  EXPECT_EQ(text(prompt(score, "")), "[score question: how?]^ level 0: low^ level 1: high]]");
}

TEST_F(LayaPrompts, ReadWhatSpellsAMaskAsASpace) {
  const Json choice = {{"type", "choice"}, {"instructions", "<mask>"}, {"criteria", {"a<mask>b"}}};
  EXPECT_EQ(text(prompt(choice, "<mask><mask>")), "[choice question:  ]^ a b]  ]");
}

TEST_F(LayaPrompts, CutTheStateToWhatIsLeft) {
  const Json choice = {{"type", "choice"}, {"instructions", "?"}, {"criteria", {"a", "b"}}};
  const std::string head = "[choice question: ?]^ a^ b]";
  EXPECT_EQ(text(prompt(choice, "0123456789", 33)), head + "01234]");
  // The last turns of a list stay.
  EXPECT_EQ(text(prompt(choice, Json({"0123", "4567"}), 33)), head + "567\"]" + "]");
  EXPECT_EQ(text(prompt(choice, "0123456789", 28)), head + "]");
}

TEST_F(LayaPrompts, CutOptionsAndInstructionsToTheirBudget) {
  const Json choice = {{"type", "choice"},
                       {"instructions", std::string(90, 'i')},
                       {"criteria", {std::string(60, 'a'), std::string(60, 'b')}}};
  // 48 tokens of an option and its mask leave 22 to the question.
  EXPECT_EQ(text(prompt(choice, "")), "[choice question: iiiii]^ " + std::string(47, 'a') + "^ " +
                                          std::string(47, 'b') + "]]");
  // Each has (60 - 16) / 2 where less than 16 are left.
  EXPECT_EQ(text(prompt(choice, "", 200, 60)),
            "[choice question:]^ " + std::string(20, 'a') + "^ " + std::string(20, 'b') + "]]");
}

TEST_F(LayaPrompts, SayWhyOptionsCannotBeToldApart) {
  Json many = Json::array();
  for (int i = 0; i < 30; ++i) many.push_back("option " + std::to_string(i));
  const Json choice = {{"type", "choice"}, {"instructions", "?"}, {"criteria", many}};
  EXPECT_THAT(prompt(choice, "s", 400).unreadable, HasSubstr("begin with the same tokens"));
  EXPECT_THAT(prompt(choice, "s", 100).unreadable, HasSubstr("need more than the 100 tokens"));
  EXPECT_EQ(prompt(choice, "s", 400, 400).unreadable, "");
  const Json equal = {{"type", "choice"}, {"instructions", "?"}, {"criteria", {"a<mask>b", "a b"}}};
  EXPECT_THAT(prompt(equal, "s").unreadable, HasSubstr("have the same tokens"));
}

TEST_F(LayaPrompts, RefuseWhatLayaRefusesAndNumbersWithoutTheirDigits) {
  const auto problem = [&](const Json& question, const Json& state) {
    return testing::message_of<Error>([&] { (void)prompt(question, state); });
  };
  EXPECT_THAT(problem({{"type", "noul"}}, "s"), HasSubstr("has no instructions"));
  const Json noul = {{"type", "noul"}, {"instructions", "ok?"}};
  EXPECT_THAT(problem(noul, nullptr), HasSubstr("state is null"));
  EXPECT_THAT(problem(noul, Json::parse(R"({"a": [123456789012345678901234567890]})")),
              HasSubstr("write it as a text"));
  EXPECT_THAT(problem(noul, Json::parse("[18446744073709551616]")),
              HasSubstr("write it as a text"));
  EXPECT_THAT(text(prompt(noul, Json::parse("[9007199254740993]"))),
              HasSubstr("9007199254740993]"));
}

TEST(LayaPrompter, NeedsTheTokensOfItsForm) {
  const testing::ByteTokenizer without_mask(false);
  EXPECT_THAT(testing::message_of<Error>([&] { LayaPrompter(without_mask, {}); }),
              HasSubstr("mask_token"));
}

}  // namespace
}  // namespace finetune
