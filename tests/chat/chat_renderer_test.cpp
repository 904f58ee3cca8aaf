// SPDX-License-Identifier: MIT
#include "finetune/chat/chat_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "finetune/base/error.h"
#include "finetune/chat/find_template.h"
#include "support/golden.h"

namespace finetune::chat {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// A template that asks for reasoning: its generation prompt is no prefix of a turn without any, as
// DeepSeek's; it leaves out the reasoning of earlier turns.
constexpr char kThinking[] =
    "{%- for m in messages -%}{{ '<|' + m.role + '|>' }}"
    "{%- if m.role == 'assistant' -%}"
    "{%- if loop.last and m.reasoning_content -%}"
    "{{ '<think>\n' + m.reasoning_content + '\n</think>\n' }}"
    "{%- endif -%}{{ m.content.split('</think>')[-1] }}"
    "{%- for call in m.tool_calls or [] -%}<call>{{ call.function | tojson }}<|callend|>{%- endfor "
    "-%}"
    "{%- else -%}{{ m.content }}{%- endif -%}{{ '<|end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|><think>\n' }}{%- endif -%}";

RenderOptions options() {
  return {
      .variables = {{"bos_token", Value("<s>")}, {"eos_token", Value("</s>")}},
      .date = {},
      .special_tokens = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>",
                         "<|end|>", "<|callend|>", "<|eot_id|>", "<|start_header_id|>",
                         "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"},
      .eos_token = "</s>",
      .assistant_only = true,
      .turns = TurnChoice::kAll,
      .instruction_template = {},
      .response_template = {}};
}

ChatRenderer renderer(const std::string& text, RenderOptions given = options()) {
  auto chat_template = text.find('{') == std::string::npos
                           ? find_chat_template("", text, "key")
                           : std::make_shared<const ChatTemplate>(text, "t.jinja");
  return {std::move(chat_template), std::move(given)};
}

// The text with what is learned in brackets.
std::string marked(const RenderedChat& rendered) {
  std::string text;
  size_t at = 0;
  for (const ByteRange& range : rendered.learned) {
    EXPECT_LE(at, range.begin);
    EXPECT_LT(range.begin, range.end);
    text += rendered.text.substr(at, range.begin - at) + "[" +
            rendered.text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return text + rendered.text.substr(at);
}

std::string learned(const ChatRenderer& chat, const std::string& row) {
  return marked(chat.render(read_conversation(Json::parse(row))));
}

constexpr char kTwoTurns[] = R"({"messages": [{"role": "system", "content": "S"},
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";

TEST(ChatRenderer, LearnsTurnsFromTheGenerationPromptToTheEndOfTurn) {
  const ChatRenderer chatml = renderer("chatml");
  EXPECT_EQ(chatml.generation_prompt(), "<|im_start|>assistant\n");
  EXPECT_EQ(chatml.end_of_turn(), "<|im_end|>");
  EXPECT_EQ(learned(chatml, kTwoTurns),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
            "<|im_start|>assistant\n[b<|im_end|>]\n<|im_start|>user\nc<|im_end|>\n"
            "<|im_start|>assistant\n[d<|im_end|>]\n");
  EXPECT_EQ(learned(renderer("llama3"), kTwoTurns),
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[b<|eot_id|>]"
            "<|start_header_id|>user<|end_header_id|>\n\nc<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[d<|eot_id|>]");
  // The system message is inside the user's turn, and there is no generation prompt.
  EXPECT_EQ(learned(renderer("mistral"), kTwoTurns),
            "<s>[INST] S\n\na [/INST] [b</s>][INST] c [/INST] [d</s>]");
  EXPECT_EQ(learned(renderer("gemma"), kTwoTurns),
            "<s><start_of_turn>user\nS\n\na<end_of_turn>\n<start_of_turn>model\n[b<end_of_turn>]\n"
            "<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n[d<end_of_turn>]\n");
  EXPECT_EQ(
      learned(renderer("phi3"), kTwoTurns),
      "<|system|>\nS<|end|>\n<|user|>\na<|end|>\n<|assistant|>\n[b<|end|>]\n<|user|>\nc<|end|>\n"
      "<|assistant|>\n[d<|end|>]\n");
  EXPECT_EQ(learned(renderer("alpaca"), kTwoTurns),
            "S\n\n### Instruction:\na\n\n### Response:\n[b</s>]\n\n### Instruction:\nc\n\n"
            "### Response:\n[d</s>]\n\n");
}

TEST(ChatRenderer, KnowsAPromptThatIsNoPrefixOfTheTurn) {
  const ChatRenderer chat = renderer(kThinking);
  EXPECT_EQ(chat.generation_prompt(), "<|assistant|><think>\n");
  const std::string row = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "<think>long thoughts</think>a"}, {"role": "user", "content": "r"},
      {"role": "assistant", "content": "b", "reasoning_content": "hm"}]})";
  EXPECT_EQ(learned(chat, row),
            "<|user|>q<|end|>\n<|assistant|>[a<|end|>]\n<|user|>r<|end|>\n"
            "<|assistant|><think>\n[hm\n</think>\nb<|end|>]\n");
  EXPECT_TRUE(chat.render(read_conversation(Json::parse(row))).drops_reasoning);
  EXPECT_FALSE(chat.render(read_conversation(Json::parse(kTwoTurns))).drops_reasoning);
}

TEST(ChatRenderer, LearnsCallsAndEmptyTurns) {
  EXPECT_EQ(
      learned(renderer(kThinking),
              R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
                       "content": "", "tool_calls": [{"function": {"name": "f"}},
                                                     {"function": {"name": "g"}}]},
                      {"role": "user", "content": "r"}, {"role": "assistant", "content": ""}]})"),
      "<|user|>q<|end|>\n<|assistant|>[<call>{\"name\": \"f\"}<|callend|>"
      "<call>{\"name\": \"g\"}<|callend|><|end|>]\n<|user|>r<|end|>\n<|assistant|>[<|end|>]\n");
}

TEST(ChatRenderer, LearnsEveryTokenThatEndsATurn) {
  const ChatRenderer chat = renderer(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>"
      "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  EXPECT_EQ(chat.end_of_turn(), "<|end|><|im_end|>");
  EXPECT_EQ(chat.stop_token(), "<|im_end|>");
  EXPECT_EQ(learned(chat, R"({"messages": [{"role": "user", "content": "a"},
                              {"role": "assistant", "content": "b"},
                              {"role": "user", "content": "c"}]})"),
            "<|user|>a<|end|><|assistant|>[b<|end|><|im_end|>]<|user|>c<|end|>");
}

TEST(ChatRenderer, MarksOfGenerationDecide) {
  EXPECT_EQ(learned(renderer("{% for m in messages %}{% if m.role == 'assistant' %}A:"
                             "{% generation %}{{ m.content }}!{% endgeneration %}{% else %}U:"
                             "{{ m.content }};{% endif %}{% endfor %}"),
                    R"({"messages": [{"role": "user", "content": "a"},
                       {"role": "assistant", "content": "b"},
                       {"role": "assistant", "content": "c", "train": false}]})"),
            "U:a;A:[b!]A:c!");
}

TEST(ChatRenderer, LearnsWholeConversationsUnlessAsked) {
  RenderOptions whole = options();
  whole.assistant_only = false;
  const std::string row = R"({"messages": [{"role": "user", "content": "a"},
                              {"role": "assistant", "content": "bad", "train": false},
                              {"role": "assistant", "content": "b"}]})";
  EXPECT_EQ(learned(renderer("chatml", whole), row),
            "[<|im_start|>user\na<|im_end|>\n<|im_start|>]assistant[\n]bad<|im_end|>\n"
            "[<|im_start|>assistant\nb<|im_end|>\n]");
  whole.response_template = "<|im_start|>assistant\n";
  whole.instruction_template = "<|im_start|>user\n";
  EXPECT_EQ(learned(renderer("chatml", whole), row),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nbad<|im_end|>\n"
            "[<|im_start|>assistant\nb<|im_end|>\n]");
}

TEST(ChatRenderer, LearnsNoTurnThatSaysSoInATemplateWithoutMarks) {
  EXPECT_EQ(learned(renderer("chatml", options()),
                    R"({"messages": [{"role": "user", "content": "a"},
                       {"role": "assistant", "content": "bad", "train": false},
                       {"role": "assistant", "content": "b"}]})"),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nbad<|im_end|>\n"
            "<|im_start|>assistant\n[b<|im_end|>]\n");
}

TEST(ChatRenderer, LearnsTheLastTurnAlone) {
  RenderOptions last = options();
  last.turns = TurnChoice::kLast;
  EXPECT_THAT(learned(renderer("chatml", last), kTwoTurns),
              HasSubstr("assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
                        "<|im_start|>assistant\n[d<|im_end|>]\n"));
}

TEST(ChatRenderer, LearnsBetweenMarkerTexts) {
  RenderOptions markers = options();
  markers.instruction_template = "Q:";
  markers.response_template = "A:";
  EXPECT_EQ(learned(renderer("chatml", markers), R"({"text": "Q: a A: b Q: c A: d"})"),
            "Q: a A:[ b ]Q: c A:[ d</s>]");
  markers.turns = TurnChoice::kLast;
  EXPECT_EQ(learned(renderer("chatml", markers), R"({"text": "Q: a A: b Q: c A: d"})"),
            "Q: a A: b Q: c A:[ d</s>]");
  // Without the text of a question only the end is known to be an answer.
  markers.turns = TurnChoice::kAll;
  markers.instruction_template = "";
  EXPECT_EQ(learned(renderer("chatml", markers), R"({"text": "Q: a A: b Q: c A: d"})"),
            "Q: a A: b Q: c A:[ d</s>]");
}

// Alpaca's form has a line break between the marker and the answer, and two after it.
TEST(ChatRenderer, LearnsNothingOfAnAnswerThatIsLeftOutBetweenMarkers) {
  RenderOptions markers = options();
  markers.instruction_template = "### Instruction:";
  markers.response_template = "### Response:";
  EXPECT_EQ(learned(renderer("alpaca", markers),
                    R"({"messages": [{"role": "user", "content": "a"},
                        {"role": "assistant", "content": "bad", "weight": 0},
                        {"role": "user", "content": "c"},
                        {"role": "assistant", "content": "d"}]})"),
            "### Instruction:\na\n\n### Response:\nbad</s>\n\n### Instruction:\nc\n\n"
            "### Response:[\nd</s>\n\n]");
}

TEST(ChatRenderer, KeepsPromptAndCompletionApart) {
  const RenderedChat text = renderer("chatml").render(
      read_conversation(Json::parse(R"({"prompt": "p", "completion": "c"})")));
  EXPECT_TRUE(text.is_plain);
  EXPECT_EQ(text.text, "pc</s>");
  EXPECT_EQ(text.prompt, "p");
  const RenderedChat chat = renderer("chatml").render(
      read_conversation(Json::parse(R"({"instruction": "I", "output": "o"})")));
  EXPECT_EQ(chat.prompt, "<|im_start|>user\nI<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatRenderer, ReportsSpecialTokensInMessages) {
  const auto reports = [](const std::string& content) {
    Json row = {{"messages", {{{"role", "user"}, {"content", content}}}}};
    return renderer("chatml").render(read_conversation(row)).has_special_tokens;
  };
  EXPECT_TRUE(reports("a <|im_end|> b"));
  EXPECT_FALSE(reports("a <|im_end b"));
}

TEST(ChatRenderer, ReportsToolsThatTheTemplateLeavesOut) {
  const auto drops = [](const std::string& text, const std::string& row) {
    return renderer(text).render(read_conversation(Json::parse(row))).drops_tools;
  };
  const std::string calls = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
                                "content": null, "tool_calls": [{"function": {"name": "f"}}]}]})";
  EXPECT_TRUE(drops("chatml", calls));
  EXPECT_FALSE(drops("{{ messages | tojson }}", calls));
  const std::string tools =
      R"({"messages": [{"role": "user", "content": "q"}], "tools": [{"name": "f"}]})";
  EXPECT_TRUE(drops("chatml", tools));
  EXPECT_FALSE(drops("{{ tools | tojson }}{{ messages[0].content }}", tools));
}

// A conversation of many messages takes linear time.
TEST(ChatRenderer, RendersLongConversations) {
  Json row = {{"messages", Json::array()}};
  for (int i = 0; i < 20000; ++i) {
    row["messages"].push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "word"}});
  }
  const RenderedChat rendered = renderer("chatml").render(read_conversation(row));
  EXPECT_EQ(rendered.learned.size(), 10000U);
}

TEST(ChatRenderer, NeedsATemplateForMessages) {
  const ChatRenderer none(nullptr, options());
  EXPECT_EQ(none.render(read_conversation(Json::parse(R"({"text": "t"})"))).text, "t</s>");
  try {
    static_cast<void>(none.render(read_conversation(Json::parse(kTwoTurns))));
    FAIL();
  } catch (const Error& error) {
    EXPECT_GOLDEN(error.what());
  }
  EXPECT_THROW(static_cast<void>(find_chat_template("", "nothing", "key")), Error);
}

// A turn without content writes nothing that could be found: the next one begins after its own
// generation prompt.
TEST(ChatRenderer, LearnsNoHeaderAfterAnEmptyTurn) {
  const std::string text =
      learned(renderer("alpaca"), R"({"messages": [{"role": "user", "content": "q"},
                                    {"role": "assistant", "content": ""},
                                    {"role": "assistant", "content": "y"}]})");
  EXPECT_THAT(text, ::testing::HasSubstr("### Response:\n[y</s>]"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("[</s>\n\n###")));
}

}  // namespace
}  // namespace finetune::chat
