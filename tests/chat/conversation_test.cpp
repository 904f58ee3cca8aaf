// SPDX-License-Identifier: MIT
#include "finetune/chat/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune::chat {
namespace {

using Json = nlohmann::ordered_json;

Conversation read(const std::string& row) { return read_conversation(Json::parse(row)); }

std::string refusal(const std::string& row) {
  try {
    static_cast<void>(read(row));
    return "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
}

std::string messages(const std::string& row) {
  std::string text;
  for (const Message& message : read(row).messages) {
    text += (text.empty() ? "" : "\n") + to_json(message.fields, {}).str();
  }
  return text;
}

TEST(Conversation, ReadsMessagesAsTheyAre) {
  EXPECT_EQ(messages(R"({"messages": [{"role": "user", "content": "a", "name": "x"},
                                      {"role": "assistant", "content": null, "tool_calls": []}]})"),
            R"({"role": "user", "content": "a", "name": "x"})"
            "\n"
            R"({"role": "assistant", "tool_calls": []})");
}

// As transformers does: many templates write "None", or fail, where a key is there with null.
TEST(Conversation, DropsTheNullKeysOfMessagesAndNothingDeeper) {
  EXPECT_EQ(messages(R"({"messages": [
                {"role": "user", "content": "a", "name": null, "tool_calls": null,
                 "reasoning_content": null, "weight": null, "train": null, "function_call": null},
                {"role": "assistant", "content": null, "thinking": null, "tool_calls": [
                  {"id": null, "type": "function", "function": {"name": "f",
                   "arguments": {"x": null}}}]},
                {"role": "assistant", "content": null}]})"),
            R"({"role": "user", "content": "a"})"
            "\n"
            R"({"role": "assistant", "tool_calls": [{"id": null, "type": "function", )"
            R"("function": {"name": "f", "arguments": {"x": null}}}]})"
            "\n"
            R"({"role": "assistant"})");
  EXPECT_EQ(messages(R"({"prompt": [{"role": "user", "content": "a", "name": null}],
                         "completion": [{"role": "assistant", "content": "b", "name": null}]})"),
            R"({"role": "user", "content": "a"})"
            "\n"
            R"({"role": "assistant", "content": "b"})");
}

// The values of an empty cell of a CSV file.
TEST(Conversation, ReadsEmptyTextOfACellAsNothing) {
  const Conversation conversation = read(
      R"({"messages": "[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": \"\"}]",
          "tools": "", "functions": "", "chat_template_kwargs": ""})");
  EXPECT_EQ(to_json(conversation.messages[0].fields, {}).str(),
            R"({"role": "user", "content": "a"})");
  EXPECT_TRUE(conversation.tools.is_none());
}

TEST(Conversation, ReadsShareGptWithItsRolesAndCalls) {
  EXPECT_EQ(messages(R"({"system": "S", "conversations": [
                {"from": "human", "value": "a"},
                {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
                {"from": "observation", "value": "o"}, {"from": "gpt", "value": "b"}]})"),
            R"({"role": "system", "content": "S"})"
            "\n"
            R"({"role": "user", "content": "a"})"
            "\n"
            R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", )"
            R"("function": {"name": "f", "arguments": {"x": 1}}}]})"
            "\n"
            R"({"role": "tool", "content": "o"})"
            "\n"
            R"({"role": "assistant", "content": "b"})");
}

TEST(Conversation, ReadsAlpacaAndKnowsItsCompletion) {
  const std::string row = R"({"instruction": "I", "input": "x", "output": "o", "system": "S",
                              "history": [["q", "a"]]})";
  EXPECT_EQ(messages(row), R"({"role": "system", "content": "S"})"
                           "\n"
                           R"({"role": "user", "content": "q"})"
                           "\n"
                           R"({"role": "assistant", "content": "a"})"
                           "\n"
                           R"({"role": "user", "content": "I\nx"})"
                           "\n"
                           R"({"role": "assistant", "content": "o"})");
  EXPECT_EQ(read(row).completion, 4U);
}

TEST(Conversation, ReadsPromptAndCompletionAsTextOrMessages) {
  const Conversation text = read(R"({"prompt": "p", "completion": "c"})");
  EXPECT_TRUE(text.messages.empty());
  EXPECT_EQ(text.prompt, "p");
  EXPECT_EQ(text.text, "c");
  const Conversation list = read(R"({"prompt": [{"role": "user", "content": "p"}],
                                     "completion": [{"role": "assistant", "content": "c"}]})");
  EXPECT_EQ(list.messages.size(), 2U);
  EXPECT_EQ(list.completion, 1U);
  const Conversation plain = read(R"({"text": "t"})");
  EXPECT_EQ(plain.text, "t");
  EXPECT_FALSE(plain.prompt);
}

TEST(Conversation, ReadsListsThatAFileSpellsAsText) {
  EXPECT_EQ(messages(R"({"messages": "[{\"role\": \"user\", \"content\": \"a\"}]"})"),
            R"({"role": "user", "content": "a"})");
  EXPECT_EQ(to_json(read(R"({"messages": [{"role": "user", "content": "a"}],
                             "tools": "[{\"type\": \"function\"}]"})")
                        .tools,
                    {})
                .str(),
            R"([{"type": "function"}])");
}

// OpenAI's former name of a call, which no template reads.
TEST(Conversation, ReadsFunctionCallAsATool) {
  EXPECT_EQ(messages(R"({"messages": [{"role": "assistant", "content": null,
                         "function_call": {"name": "f", "arguments": "{}"}}]})"),
            R"({"role": "assistant", "tool_calls": [{"type": "function", )"
            R"("function": {"name": "f", "arguments": "{}"}}]})");
  EXPECT_GOLDEN(
      refusal(R"({"messages": [{"role": "assistant", "content": "", "function_call": 3}]})"));
}

TEST(Conversation, ReadsOpenAisFormerFunctionsAsToolsAndTheirResults) {
  const Conversation former =
      read(R"({"messages": [{"role": "function", "name": "f", "content": "2.5"}],
               "functions": [{"name": "f", "parameters": {"type": "object"}}]})");
  EXPECT_EQ(former.messages[0].role, "tool");
  EXPECT_EQ(to_json(former.messages[0].fields, {}).str(),
            R"({"role": "tool", "name": "f", "content": "2.5"})");
  EXPECT_EQ(to_json(former.tools, {}).str(),
            R"([{"type": "function", "function": {"name": "f", "parameters": )"
            R"({"type": "object"}}}])");
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "content": "a"}],
                          "tools": [{"name": "f"}], "functions": [{"name": "f"}]})"));
}

// As transformers does, before a template sees a message.
TEST(Conversation, GivesReasoningTheNamesThatTemplatesRead) {
  EXPECT_EQ(messages(R"({"messages": [{"role": "assistant", "content": "c", "reasoning": "r"}]})"),
            R"({"thinking": "r", "role": "assistant", "content": "c", "reasoning": "r", )"
            R"("reasoning_content": "r"})");
}

TEST(Conversation, KnowsWhatIsNotLearned) {
  const Conversation conversation =
      read(R"({"messages": [{"role": "assistant", "content": "a", "train": false},
                            {"role": "assistant", "content": "b", "weight": 0},
                            {"role": "assistant", "content": "c", "weight": 1}]})");
  EXPECT_FALSE(conversation.messages[0].learns);
  EXPECT_FALSE(conversation.messages[1].learns);
  EXPECT_TRUE(conversation.messages[2].learns);
  EXPECT_EQ(to_json(conversation.messages[0].fields, {}).str(),
            R"({"role": "assistant", "content": "a"})");
}

TEST(Conversation, RefusesMalformedRowsWithTheReason) {
  EXPECT_GOLDEN(refusal(R"({"question": "q", "answer": "a"})"));
  EXPECT_GOLDEN(refusal(R"({"messages": []})"));
  EXPECT_GOLDEN(refusal(R"({"messages": "no list"})"));
  EXPECT_GOLDEN(refusal(R"({"messages": null})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "contnet": "a"}]})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "content": "", "tool_calls": "x"}]})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"content": "a"}]})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "content": 5}]})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"));
  EXPECT_GOLDEN(refusal(R"({"conversations": [{"from": "alien", "value": "a"}]})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "content": "a", "weight": 0.5}]})"));
  EXPECT_GOLDEN(refusal(R"({"messages": [{"role": "user", "content": "a"}], "tools": 3})"));
}

}  // namespace
}  // namespace finetune::chat
