// SPDX-License-Identifier: MIT
#include "finetune/data/pair_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "finetune/base/error.h"
#include "finetune/chat/find_template.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;

// The tokenizer of the examples, whose end of text is "</s>", with the template "chatml".
class PairRows : public ::testing::Test {
 protected:
  PairRows() : tokenizer_(load_tokenizer(source_dir() + "/tests/fixtures/tokenizers/causal")) {}

  [[nodiscard]] PairOptions options() const {
    chat::RenderOptions render{.variables = {{"eos_token", chat::Value("</s>")}},
                               .date = {},
                               .special_tokens = {"<s>", "</s>"},
                               .eos_token = "</s>",
                               .assistant_only = false,
                               .turns = chat::TurnChoice::kAll,
                               .instruction_template = {},
                               .response_template = {}};
    PairOptions options;
    options.renderer = std::make_shared<const chat::ChatRenderer>(
        chat::find_chat_template("", "chatml", "key"), std::move(render));
    options.key = "train_file";
    options.max_seq_length = 400;
    options.vocabulary_limit = 600;
    return options;
  }
  [[nodiscard]] std::shared_ptr<const PairDataset> read(const std::string& rows,
                                                        PairOptions options) const {
    options.json_lines = rows;
    return build_pair_dataset({}, *tokenizer_, options);
  }
  [[nodiscard]] std::shared_ptr<const PairDataset> read(const std::string& rows) const {
    return read(rows, options());
  }
  // What is learned of a side, and what is not.
  [[nodiscard]] std::string text(const Dataset& data, int64_t side, bool is_learned,
                                 int64_t index = 0) const {
    const Example example = data.get(index, side);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < example.labels.size(); ++i) {
      if ((example.labels[i] >= 0) == is_learned) {
        ids.push_back(static_cast<int32_t>(example.input_ids[i]));
      }
    }
    return tokenizer_->decode(ids, false);
  }
  [[nodiscard]] std::string refusal(const std::string& rows) const {
    try {
      (void)read(rows);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(PairRows, OfTextsEndWithTheTextsEnd) {
  const auto data =
      read(R"({"prompt": "The sea is", "chosen": " deep.", "rejected": " a boat.</s>"})");
  ASSERT_EQ(data->size(), 1);
  EXPECT_EQ(data->choices(), 2);
  EXPECT_EQ(text(*data, 0, false), "<s>The sea is");
  EXPECT_EQ(text(*data, 0, true), " deep.</s>");
  EXPECT_EQ(text(*data, 1, true), " a boat.</s>");
  EXPECT_FALSE(data->get(0).label.has_value());
}

TEST_F(PairRows, HavePromptsInManyShapes) {
  const std::string chosen = R"({"role": "assistant", "content": "The keeper."})";
  const std::string rejected = R"({"role": "assistant", "content": "The hour."})";
  const std::string question = R"({"role": "user", "content": "Who?"})";
  const auto row = [](const std::string& prompt, const std::string& first,
                      const std::string& second) {
    return "{" + prompt + R"("chosen": )" + first + R"(, "rejected": )" + second + "}";
  };
  const std::vector<std::string> alike = {
      row(R"("prompt": [)" + question + "], ", "[" + chosen + "]", "[" + rejected + "]"),
      row("", "[" + question + "," + chosen + "]", "[" + question + "," + rejected + "]"),
      row(R"("prompt": "Who?", )", "[" + chosen + "]", "[" + rejected + "]"),
      row(R"("prompt": "Who?", )", "[" + question + "," + chosen + "]",
          "[" + question + "," + rejected + "]"),
      row(R"("prompt": [)" + question + "], ", R"("The keeper.")", R"("The hour.")"),
      row(R"("instruction": "Who?", "input": "", )", R"("The keeper.")", R"("The hour.")"),
      row(R"("conversations": [{"from": "human", "value": "Who?"}], )",
          R"({"from": "gpt", "value": "The keeper."})",
          R"({"from": "gpt", "value": "The hour."})")};
  for (const std::string& one : alike) {
    const auto data = read(one);
    ASSERT_EQ(data->size(), 1) << one;
    EXPECT_THAT(text(*data, 0, false), HasSubstr("Who?")) << one;
    EXPECT_THAT(text(*data, 0, true), HasSubstr("The keeper.")) << one;
    EXPECT_THAT(text(*data, 1, true), HasSubstr("The hour.")) << one;
    EXPECT_EQ(data->fingerprint(), read(alike[0])->fingerprint()) << one;
  }
}

TEST_F(PairRows, HaveASystemMessageFromItsColumn) {
  const std::string answers = R"("chosen": "The keeper.", "rejected": "The hour."})";
  const std::string system = R"({"role": "system", "content": "Be brief."})";
  const std::string question = R"({"role": "user", "content": "Who?"})";
  const auto expected = read(R"({"prompt": [)" + system + "," + question + "], " + answers);
  for (const std::string& prompt :
       {std::string(R"("question": "Who?", )"), std::string(R"("input": "Who?", )"),
        std::string(R"("prompt": "Who?", )"), R"("prompt": [)" + question + "], ",
        R"("prompt": [)" + system + "," + question + "], "}) {
    const auto data = read(R"({"system": "Be brief.", )" + prompt + answers);
    EXPECT_EQ(data->fingerprint(), expected->fingerprint()) << prompt;
  }
}

TEST_F(PairRows, TellOfPromptsThatAreReadTwiceOrNot) {
  const std::string sides =
      R"("chosen": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "a"}], )"
      R"("rejected": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(read(R"({"prompt": "Who? ", )" + sides)->counts().unread_prompts, 0);
  for (const char* prompt :
       {R"("prompt": [{"content": "Who?", "role": "user"}], )", R"("question": "Who?", )",
        R"("system": "s", "question": "Who?", )", R"("input": ["Who?"], )"}) {
    const auto data = read("{" + std::string(prompt) + sides);
    EXPECT_EQ(data->counts().unread_prompts, 0) << prompt;
    EXPECT_THAT(text(*data, 0, true), HasSubstr("a")) << prompt;
  }
  for (const char* prompt : {R"("prompt": "When?", )", R"("question": "When?", )",
                             R"("prompt": [{"role": "user", "content": "When?"}], )"}) {
    EXPECT_EQ(read("{" + std::string(prompt) + sides)->counts().unread_prompts, 1) << prompt;
  }
  const auto twice = read(R"({"prompt": "Q: Who? A:", "chosen": "Q: Who? A: a",)"
                          R"( "rejected": "Q: Who? A: b"})");
  EXPECT_EQ(twice->counts().repeated_prompts, 1);
}

TEST_F(PairRows, NameTheTextsThatNothingReads) {
  const auto unread = [&](const std::string& more) {
    return read("{" + more + R"("chosen": "The sea", "rejected": "The hour"})")
        ->counts()
        .unread_columns;
  };
  EXPECT_EQ(unread(""), "");
  EXPECT_EQ(unread(R"("source": "a", "score": 3, )"), "the columns \"source\"");
  EXPECT_EQ(unread(R"("source": "a", "prompt": "Who?", )"), "");
}

TEST_F(PairRows, HaveTheCommonBeginningAsPrompt) {
  const auto prompt_of = [&](const std::string& chosen, const std::string& rejected) {
    const auto data = read(R"({"chosen": ")" + chosen + R"(", "rejected": ")" + rejected + R"("})");
    return text(*data, 0, false);
  };
  EXPECT_EQ(prompt_of("The sea is deep", "The sea is high"), "<s>The sea is");  // without the space
  EXPECT_EQ(prompt_of("a\xC3\xA9", "a\xC3\xA8"), "<s>a");  // no half of a character
  // As TRL: of a text that the other begins with, the last character is left.
  const auto data = read(R"({"chosen": "The sea", "rejected": "The sea is"})");
  EXPECT_EQ(text(*data, 0, true), " sea</s>");
}

TEST_F(PairRows, CountWhatIsCutAndLeftOut) {
  std::string words;
  for (int i = 0; i < 500; ++i) words += " sea";
  const std::string rows = R"({"prompt": "a", "chosen": " b", "rejected": " c"})"
                           "\n"
                           R"({"prompt": "a", "chosen": " b", "rejected": " b"})"
                           "\n"
                           R"({"prompt": "a", "chosen": "", "rejected": " b"})"
                           "\n"
                           R"({"prompt": ")" +
                           words + R"(", "chosen": " b", "rejected": " c"})" + "\n" +
                           R"({"prompt": "a", "chosen": ")" + words + R"(", "rejected": " c"})" +
                           "\n" + R"({"prompt": "a", "chosen": null, "rejected": 3})";
  PairOptions with_limit = options();
  with_limit.skip_bad_rows = true;
  const auto data = read(rows, with_limit);
  const PairCounts& counts = data->counts();
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(counts.rows, 6);
  EXPECT_EQ(counts.same_answers, 1);
  EXPECT_EQ(counts.empty_answers, 1);
  EXPECT_EQ(counts.long_prompts, 1);
  EXPECT_EQ(counts.truncated, 1);
  EXPECT_EQ(counts.bad, 1);
  EXPECT_EQ(data->length(1, 0), 400);
}

TEST_F(PairRows, SayHowAPromptEndsThatIsNoBeginning) {
  const auto data = read(R"({"prompt": "Who? ", "chosen": "the keeper", "rejected": "the hour"})");
  EXPECT_EQ(data->counts().prompt_differs, 1);
  EXPECT_EQ(data->counts().first_difference, " ");
  EXPECT_EQ(text(*data, 0, false), "<s>Who?");
}

TEST_F(PairRows, HaveAllLabelsOfTheChosenSideWhereThatIsLearned) {
  PairOptions learns = options();
  learns.learns_chosen = true;
  const auto data =
      read(R"({"prompt": "The sea is", "chosen": " deep.", "rejected": " high."})", learns);
  EXPECT_EQ(text(*data, 0, true), "<s>The sea is deep.</s>");
  EXPECT_EQ(text(*data, 1, true), " high.</s>");
  const Example chosen = data->get(0, 0);
  ASSERT_EQ(chosen.values.size(), 1U);
  const Example rejected = data->get(0, 1);
  EXPECT_EQ(static_cast<int64_t>(chosen.values[0]),
            std::ranges::count_if(rejected.labels, [](int32_t label) { return label < 0; }));
}

TEST_F(PairRows, AreRefusedWithTheirLine) {
  const std::vector<std::string> bad = {
      R"({"prompt": "a", "chosen": "b"})",
      R"({"prompt": "a", "completion": "b", "label": true})",
      R"({"prompt": "a", "chosen": 3, "rejected": "b"})",
      R"({"prompt": "a", "chosen": ["b"], "rejected": ["c"]})",
      R"({"prompt": "a", "chosen": "b", "rejected": null})",
      R"({"chosen": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "a"}], )"
      R"("rejected": [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "b"}]})",
      R"({"prompt": [{"role": "user", "content": "Who?"}], )"
      R"("chosen": [{"role": "user", "content": "Now."}], )"
      R"("rejected": [{"role": "assistant", "content": "b"}]})",
      R"({"prompt": "a", "chosen": " b", "rejected": " b"})",
      R"({"promt": "a", "chosen": " b", "rejected": " c"})",
      R"({"prompt": null, "chosen": " b", "rejected": " c"})"};
  std::string messages;
  for (const std::string& row : bad) messages += refusal(row) + "\n";
  EXPECT_GOLDEN(messages);
}

// Answers with a label.
class AnswerRows : public PairRows {
 protected:
  [[nodiscard]] std::shared_ptr<const AnswerDataset> answers(const std::string& rows) const {
    PairOptions with_rows = options();
    with_rows.json_lines = rows;
    return build_answer_dataset({}, *tokenizer_, with_rows);
  }
  // The answers that are learned, and after a colon those that estimate the divergence.
  [[nodiscard]] std::string partners(const std::string& rows) const {
    const auto data = answers(rows);
    std::string all;
    for (int64_t i = 0; i < data->size(); ++i) {
      for (int64_t side = 0; side < 2; ++side) {
        std::string learned = text(*data, side, true, i);
        learned.resize(learned.find("</s>"));
        all += learned + (side == 0 ? ":" : "");
      }
    }
    return all;
  }
};

TEST_F(AnswerRows, HaveTheAnswerBeforeThemAsPartner) {
  const auto answer = [](const std::string& prompt, const std::string& text) {
    return R"({"prompt": ")" + prompt + R"(", "completion": " )" + text + R"(", "label": )" +
           (text < "e" ? "true" : "false") + "}\n";
  };
  EXPECT_EQ(partners(answer("p", "a") + answer("q", "b") + answer("r", "f")), " a: f b: a f: b");
}

TEST_F(AnswerRows, OfPairsHaveAPartnerOfTheSameSide) {
  const auto pair = [](const std::string& prompt, const std::string& a, const std::string& b) {
    return R"({"prompt": ")" + prompt + R"(", "chosen": " )" + a + R"(", "rejected": " )" + b +
           "\"}\n";
  };
  EXPECT_EQ(partners(pair("p", "a", "b") + pair("q", "c", "d") + pair("r", "e", "f")),
            " a: e b: f c: a d: b e: c f: d");
  EXPECT_EQ(partners(pair("p", "a", "b")), " a: b b: a");
  // Where a side is left out, too.
  const std::string alone = R"({"prompt": "p", "chosen": " a", "rejected": ""})";
  EXPECT_EQ(partners(alone + "\n" + pair("q", "c", "d")), " a: c c: a d: a");
}

TEST_F(AnswerRows, TakeThePromptFromAWholeConversation) {
  const std::string whole =
      R"([{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "The keeper."}])";
  const auto expected = answers(
      R"({"prompt": [{"role": "user", "content": "Who?"}], "completion": "The keeper.", "label": 1})");
  for (const std::string& columns :
       {R"("completion": )" + whole, R"("prompt": "Who?", "completion": )" + whole,
        R"("prompt": [{"role": "user", "content": "Who?"}], "completion": )" + whole,
        R"("messages": )" + whole}) {
    const auto data = answers("{" + columns + R"(, "label": true})");
    EXPECT_EQ(data->fingerprint(), expected->fingerprint()) << columns;
    EXPECT_EQ(data->counts().unread_prompts, 0) << columns;
  }
}

TEST_F(AnswerRows, AreRefusedWithTheirLine) {
  std::string messages;
  for (const char* row : {
           R"({"prompt": "a", "completion": "b", "label": true, "kto_tag": false})",
           R"({"prompt": "a", "completion": "b", "label": "good"})",
           R"({"prompt": null, "completion": "b", "label": true})",
           R"({"promt": "a", "completion": "b", "label": true})",
           R"({"messages": [{"role": "user", "content": "a"}], "label": true})",
           R"({"messages": [{"role": "assistant", "content": "a"}], "label": true})",
           R"({"prompt": "a", "completion": [{"role": "user", "content": "a"}], "label": true})",
           R"({"text": "a", "label": true})",
       }) {
    try {
      (void)answers(row);
      messages += "read\n";
    } catch (const Error& error) {
      messages += std::string(error.what()) + "\n";
    }
  }
  EXPECT_GOLDEN(messages);
}

}  // namespace
}  // namespace finetune
