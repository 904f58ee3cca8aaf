// SPDX-License-Identifier: MIT
#include "finetune/data/decision_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/chat/find_template.h"
#include "finetune/data/decision_collator.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The tokenizer of the examples, in which "y", "n" and letters are tokens, with chatml.
class DecisionRows : public ::testing::Test {
 protected:
  DecisionRows() : tokenizer_(load_tokenizer(source_dir() + "/tests/fixtures/tokenizers/causal")) {}

  [[nodiscard]] DecisionOptions options(const std::string& decision_template = "") const {
    DecisionOptions options;
    options.settings.labels[0] = {"y", "n"};
    TemplatePrompterOptions prompt{.chat_template = chat::find_chat_template("", "chatml", "key")};
    if (!decision_template.empty()) {
      prompt.decision_template =
          std::make_shared<const chat::ChatTemplate>(decision_template, "decision");
    }
    options.prompter = std::make_shared<const TemplatePrompter>(*tokenizer_, std::move(prompt));
    options.max_seq_length = 256;
    options.vocabulary_limit = 600;
    return options;
  }
  [[nodiscard]] std::shared_ptr<const DecisionDataset> read(const std::string& rows,
                                                            DecisionOptions options,
                                                            uint64_t seed = 1) const {
    options.json_lines = rows;
    return build_decision_dataset({}, *tokenizer_, options, seed);
  }
  [[nodiscard]] std::string text(const Example& example) const {
    std::vector<int32_t> ids(example.input_ids.size());
    example.input_ids.copy_to(ids.data());
    return tokenizer_->decode(ids, false);
  }
  [[nodiscard]] static std::vector<DecisionGroup> groups(const Example& example) {
    return read_groups(std::vector<int64_t>(example.labels.begin(), example.labels.end()));
  }
  // What reading a row of these members, with a question of this type and criteria, says.
  [[nodiscard]] std::string problem(const std::string& row) const {
    return testing::message_of<Error>([&] { (void)read(row, options()); });
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

constexpr const char* kRow =
    R"({"state": "calm", "questions": {"a": {"type": "noul", "instructions": "ok?"},)"
    R"( "b": {"type": "choice", "criteria": {"x": null, "y": "why", "z": ""}},)"
    R"( "c": {"type": "score", "criteria": ["low", "mid", "high"]}},)"
    R"( "expected": {"a": true, "c": 1.25}, "gold": {"b": {"probabilities": {"z": 0.75, "x": 0.25}}},)"
    R"( "weight": {"b": 2}})";

TEST_F(DecisionRows, MakeAPromptForEachQuestion) {
  const auto data = read(kRow, options());
  ASSERT_EQ(data->size(), 3);
  EXPECT_GOLDEN(text(data->get(0)) + "\n---\n" + text(data->get(1)) + "\n---\n" +
                text(data->get(2)));
  const DecisionGroup noul = groups(data->get(0)).at(0);
  EXPECT_EQ(noul.type, QuestionType::kNoul);
  EXPECT_EQ(noul.marks.front(), data->length(0));
  EXPECT_THAT(noul.target, ElementsAre(1.0F, 0.0F));
  const DecisionGroup choice = groups(data->get(1)).at(0);
  EXPECT_EQ(choice.weight, 2.0F);
  EXPECT_THAT(choice.target, ElementsAre(0.25F, 0.0F, 0.75F));
  EXPECT_THAT(groups(data->get(2)).at(0).target, ElementsAre(0.0F, 0.75F, 0.25F));
}

TEST_F(DecisionRows, ShareAPromptWhereTheTemplateReadsQuestions) {
  const auto data = read(kRow, options("{{ state }}{% for q in questions %} {{ q.name }}:<|mark|>"
                                       "{% endfor %}{{ '.' * 9 }}"));
  ASSERT_EQ(data->size(), 1);
  EXPECT_EQ(text(data->get(0)), "calm a: b: c:.........");
  const std::vector<DecisionGroup> all = groups(data->get(0));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_LT(all[0].marks.front(), all[1].marks.front());
  EXPECT_LT(all[2].marks.front(), data->length(0));
}

TEST_F(DecisionRows, OfColumnsAskOneQuestion) {
  const auto data = read(
      R"({"text": "t", "question": "q", "options": "x | y", "answer": "y"})"
      "\n"
      R"({"text": "t", "question": "q", "options": ["x", "y"], "answer": "x", "type": "choice"})"
      "\n"
      R"({"text": "t", "question": "q", "options": null, "answer": "no"})"
      "\n"
      R"({"text": "t", "question": "q", "options": "[\"a\", \"b\"]", "answer": "0.5", "type": "score"})",
      options());
  ASSERT_EQ(data->size(), 4);
  EXPECT_THAT(groups(data->get(0)).at(0).target, ElementsAre(0.0F, 1.0F));
  EXPECT_THAT(groups(data->get(1)).at(0).target, ElementsAre(1.0F, 0.0F));
  EXPECT_THAT(groups(data->get(2)).at(0).target, ElementsAre(0.0F, 1.0F));
  EXPECT_THAT(groups(data->get(3)).at(0).target, ElementsAre(0.5F, 0.5F));
}

TEST_F(DecisionRows, ReadAnswersAsPredictPrintsThem) {
  const auto data = read(
      R"({"state": 3, "questions": {"a": {"type": "noul"}, "b": {"type": "choice", "criteria": {"x":)"
      R"( null, "y": null}}}, "answers": {"a": {"type": "noul", "noul": 0.75}, "b": {"type": "choice",)"
      R"( "choice": "y", "confidence": 0.5, "probabilities": {"x": 0.25, "y": 0.75}}}})",
      options());
  EXPECT_THAT(groups(data->get(0)).at(0).target, ElementsAre(0.75F, 0.25F));
  EXPECT_THAT(groups(data->get(1)).at(0).target, ElementsAre(0.25F, 0.75F));
}

// The order is a function of seed, epoch and sample; each is shown before one is shown again, and
// the probabilities follow their options.
TEST_F(DecisionRows, ShowTheOptionsInAnotherOrderInEachEpoch) {
  DecisionOptions shuffled = options();
  shuffled.orders = 8;
  const auto data = read(kRow, shuffled);
  std::set<std::string> orders;
  bool differs = false;
  for (int64_t epoch = 0; epoch < 12; ++epoch) {
    const Example example = data->get_in_epoch(1, epoch);
    const std::string shown = text(example);
    const bool is_new = orders.insert(shown).second;
    EXPECT_EQ(is_new, epoch < 6) << epoch;  // three options have six orders
    const DecisionGroup group = groups(example).at(0);
    for (size_t slot = 0; slot < 3; ++slot) {
      const char label = static_cast<char>('A' + slot);
      const size_t at = shown.find(std::string(1, label) + ". ");
      const float expected = shown[at + 3] == 'x' ? 0.25F : shown[at + 3] == 'z' ? 0.75F : 0.0F;
      EXPECT_EQ(group.target[slot], expected) << shown;
    }
    EXPECT_EQ(text(read(kRow, shuffled)->get_in_epoch(1, epoch)), shown);
    differs = differs || text(read(kRow, shuffled, 2)->get_in_epoch(1, epoch)) != shown;
    EXPECT_EQ(text(data->get_in_epoch(0, epoch)), text(data->get(0)));  // of a noul there is one
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(text(data->get_in_epoch(1, SampleKey::kEvaluation)), text(data->get(1)));
}

TEST_F(DecisionRows, AreLeftOutWhereTheyAreTooLongOrHaveNoAnswer) {
  DecisionOptions few = options();
  few.max_seq_length = 70;
  const auto data = read(
      R"({"state": "s", "questions": {"a": {"type": "noul"}, "b": {"type": "noul"}}, "expected": {"a": 1}})"
      "\n"
      R"({"state": "a long state that does not fit into so few tokens, whatever the question is",)"
      R"( "questions": {"a": {"type": "noul"}}, "expected": {"a": 0}})",
      few);
  EXPECT_EQ(data->size(), 1);
  EXPECT_EQ(data->counts().unanswered, 1);
  EXPECT_EQ(data->counts().too_long, 1);
}

TEST_F(DecisionRows, AreCollatedWithTheirQuestionsFirst) {
  const auto data = read(kRow, options());
  const DecisionCollator collator(PaddingOptions{.pad_id = 1});
  const std::vector<SampleKey> keys = {{.index = 2, .epoch = 0}, {.index = 0, .epoch = 0}};
  const Batch batch = collator.collate(*data, keys);
  EXPECT_EQ(batch.targets, 2);
  EXPECT_THAT(batch.samples, ElementsAre(2, 0));
  const auto second = std::span(batch.labels).subspan(static_cast<size_t>(batch.length));
  EXPECT_EQ(read_groups(second).at(0).marks.front(), data->length(0));
}

// Wrong rows, each with its position and what would be right.
TEST_F(DecisionRows, SayWhatIsWrong) {
  const auto with = [](const std::string& question, const std::string& expected) {
    return R"({"state": "s", "questions": {"q": )" + question + R"(}, "expected": {"q": )" +
           expected + "}}";
  };
  const std::string choice = R"({"type": "choice", "criteria": {"calm": null, "rough": null}})";
  std::string letters = R"({"type": "choice", "criteria": {)";
  for (int i = 0; i < 27; ++i) {
    letters += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "\": null";
  }
  std::string said;
  for (const std::string& row :
       {with(R"({"type": "maybe"})", "1"),
        with(R"({"type": "choice"})", "1"),
        with(R"({"type": "score", "criteria": {}})", "1"),
        with(R"({"type": "noul", "criteria": {"yes": ""}})", "1"),
        with(R"({"type": "noul", "options": 3})", "1"),
        with(choice, R"("callm")"),
        with(choice, "3"),
        with(choice, "null"),
        with(R"({"type": "score", "criteria": ["a", "b"]})", "1.5"),
        with(R"({"type": "noul"})", R"("perhaps")"),
        with(letters + "}}", "3"),
        std::string(R"({"state": "s", "questions": {}})"),
        std::string(R"({"state": "s", "questions": [1]})"),
        std::string(R"({"questions": {"q": {"type": "noul"}}})"),
        std::string(
            R"({"state": "s", "questions": {"q": {"type": "noul"}}, "expected": {"p": 1}})"),
        std::string(R"({"state": "s", "questions": {"q": )" + choice +
                    R"(}, "gold": {"q": {"probabilities": {"calm": 0.5, "rough": 0.6}}}})"),
        std::string(R"({"state": "s", "questions": {"q": )" + choice +
                    R"(}, "gold": {"q": {"probabilities": {"calm": -1, "rough": 2}}}})"),
        std::string(R"({"state": "s", "questions": {"q": )" + choice +
                    R"(}, "answers": {"q": {"type": "choice"}}})"),
        std::string(R"({"state": "s", "questions": {"q": )" + choice +
                    R"(}, "expected": {"q": "calm"}, "weight": 0})"),
        std::string(R"({"state": "s", "questions": {"q": )" + choice +
                    R"(}, "expected": {"q": "calm"}, "weight": {"p": 2}})"),
        std::string(R"({"text": "t", "question": "q", "options": "a|", "answer": "a"})"),
        std::string(R"({"text": "t", "label": "q"})")}) {
    said += problem(row) + "\n";
  }
  EXPECT_GOLDEN(said);
}

TEST_F(DecisionRows, RefuseLabelsOfSeveralTokensOrOfOne) {
  DecisionOptions wrong = options();
  wrong.settings.labels[0] = {"Yes", "No"};
  EXPECT_GOLDEN(testing::message_of<Error>([&] { (void)read(kRow, wrong); }));
  wrong.settings.labels[0] = {"y", "y"};
  EXPECT_GOLDEN(testing::message_of<Error>([&] { (void)read(kRow, wrong); }));
}

TEST(DecisionSettings, AreReadAsTheyAreWritten) {
  DecisionSettings settings;
  settings.labels[2] = {"0", "1"};
  settings.temperature = {1.0, 2.5, 0.75};
  settings.noul_options = {"false", "true"};
  settings.sanitize_control_tokens = false;
  settings.adapter = "adapter";
  const std::string text = settings.text();
  EXPECT_EQ(DecisionSettings::parse(text, "decision.json").text(), text);
  std::string said;
  for (const char* wrong :
       {"[]", R"({"labels": []})", R"({"labels": {"noul": "Yes"}})", R"({"labels": {"noul": [1]}})",
        R"({"temperature": {"score": 0}})", R"({"temperature": {"score": "1"}})",
        R"({"noul_options": ["yes", "no"]})", R"({"sanitize_control_tokens": 1})"}) {
    said +=
        testing::message_of<Error>([&] { (void)DecisionSettings::parse(wrong, "decision.json"); }) +
        "\n";
  }
  EXPECT_GOLDEN(said);
}

}  // namespace
}  // namespace finetune
