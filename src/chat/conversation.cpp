// SPDX-License-Identifier: MIT
#include "finetune/chat/conversation.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "chat/arguments.h"
#include "finetune/base/json.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"

namespace finetune::chat {
namespace {

using Json = nlohmann::ordered_json;

// Names of a model's reasoning; templates read "reasoning_content" or "thinking".
constexpr std::array<const char*, 3> kReasoningNames = {"reasoning_content", "thinking",
                                                        "reasoning"};

bool has_value(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found != object.end() && !found->is_null();
}

// A list or object that a file without types spells as JSON text.
Json parsed(const Json& value, const std::string& what) {
  if (!value.is_string()) return value;
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty()) return nullptr;
  if (text.front() != '[' && text.front() != '{') fail(what + " must be a list, not text");
  return parse_json(text, what, ErrorKind::kData);
}

bool is_list_of_objects(const Json& value) {
  return value.is_array() &&
         std::ranges::all_of(value, [](const Json& item) { return item.is_object(); });
}

std::string text_of(const Json& object, const std::string& name, const std::string& what) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_string()) fail(what + "'" + name + "' must be text, not " + found->type_name());
  return found->get<std::string>();
}

int32_t field_of(const std::string& name) {
  if (name == "role") return kRoleField;
  if (name == "content") return kContentField;
  if (name == "tool_calls") return kToolCallsField;
  const bool is_reasoning = std::ranges::find(kReasoningNames, name) != kReasoningNames.end();
  return is_reasoning ? kReasoningField : kOtherField;
}

// Whether a message takes part in the loss: "train": false and "weight": 0 leave it out.
bool learns(const Json& message, const std::string& what) {
  if (has_value(message, "train")) {
    if (!message["train"].is_boolean()) fail(what + "'train' must be true or false");
    return message["train"].get<bool>();
  }
  if (!has_value(message, "weight")) return true;
  const Json& weight = message["weight"];
  if (!weight.is_number() || (weight.get<double>() != 0.0 && weight.get<double>() != 1.0)) {
    fail(what + "'weight' must be 0 or 1");
  }
  return weight.get<double>() != 0.0;
}

void check_content(const Json& message, const std::string& what) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null() || content->is_string()) return;
  if (!is_list_of_objects(*content)) {
    fail(what + "'content' must be text, a list of parts or null, not " + content->type_name());
  }
  for (const Json& part : *content) {
    if (!has_value(part, "type") || !part["type"].is_string())
      fail(what + "a part of 'content' has no 'type'");
    const std::string& type = part["type"].get_ref<const std::string&>();
    if (type != "text") {
      fail(what + "a part of 'content' has the type '" + type + "'; only text can be learned");
    }
    if (!has_value(part, "text") || !part["text"].is_string())
      fail(what + "a part of 'content' has no 'text'");
  }
}

bool contains_think_tag(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() &&
         content->get_ref<const std::string&>().find("</think>") != std::string::npos;
}

// {from, value} as {role, content}.
Json from_value(const Json& message, const ConversationNames& names, const std::string& what) {
  const std::string from = text_of(message, names.role, what);
  const std::string value = text_of(message, names.content, what);
  Json result = {{"role", ""}, {"content", value}};
  const auto is = [&](const std::string& tag, const char* role) {
    return from == tag || from == role;
  };
  if (is(names.user, "user")) {
    result["role"] = "user";
  } else if (is(names.assistant, "assistant")) {
    result["role"] = "assistant";
  } else if (is(names.system_role, "system")) {
    result["role"] = "system";
  } else if (is(names.observation, "tool")) {
    result["role"] = "tool";
  } else if (from == names.function) {
    const Json call = parsed(Json(value), what + "'" + names.content + "' of a function call");
    Json calls = Json::array();
    for (const Json& one : call.is_array() ? call : Json::array({call})) {
      if (!one.is_object() || !has_value(one, "name")) fail(what + "a function call has no 'name'");
      calls.push_back({{"type", "function"}, {"function", one}});
    }
    result = {{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}};
  } else {
    fail(format_text("{}'{}' is {}, which is none of {}, {}, {}, {}, {}", what, names.role,
                     "'" + printable_line(from) + "'", names.user, names.assistant,
                     names.system_role, names.observation, names.function));
  }
  for (const char* name : {"train", "weight"}) {
    if (has_value(message, name)) result[name] = message[name];
  }
  return result;
}

// Functions under OpenAI's former names, which templates do not read, as tool calls and their
// results.
void take_former_names(Json& json, const std::string& what) {
  if (has_value(json, "role") && json["role"] == "function") json["role"] = "tool";
  if (!has_value(json, "function_call")) return;
  if (has_value(json, "tool_calls") && !json["tool_calls"].empty()) {
    fail(what + "has both 'tool_calls' and 'function_call', its former name; keep one");
  }
  const Json call = parsed(json["function_call"], what + "'function_call'");
  if (!call.is_object() || !has_value(call, "name") || !has_value(call, "arguments")) {
    fail(what + "'function_call' must be an object with 'name' and 'arguments'");
  }
  json.erase("function_call");
  json["tool_calls"] = Json::array({{{"type", "function"}, {"function", call}}});
}

// Whether a message has a key that can hold its text. Its value may be null.
bool has_text_key(const Json& json) {
  return json.contains("content") || json.contains("tool_calls") ||
         std::ranges::any_of(kReasoningNames,
                             [&](const char* name) { return has_value(json, name); });
}

// A key whose value is null is one that the message lacks (apply_chat_template() of transformers).
// Many templates write "None" or fail where such a key is there.
void drop_null_keys(Json& json) {
  for (auto item = json.begin(); item != json.end();) {
    item = item->is_null() ? json.erase(item) : std::next(item);
  }
}

Message make_message(Json json, size_t index, const std::string& what) {
  Message message;
  take_former_names(json, what);
  if (has_value(json, "tool_calls")) {
    json["tool_calls"] = parsed(json["tool_calls"], what + "'tool_calls'");
  }
  if (!has_value(json, "role")) fail(what + "has no 'role'");
  if (!json["role"].is_string()) fail(what + "'role' must be text");
  if (!has_text_key(json)) fail(what + "has neither 'content' nor 'tool_calls'");
  drop_null_keys(json);
  if (has_value(json, "tool_calls") && !is_list_of_objects(json["tool_calls"])) {
    fail(what + "'tool_calls' must be a list of calls");
  }
  message.has_tool_calls = has_value(json, "tool_calls") && !json["tool_calls"].empty();
  message.role = json["role"].get<std::string>();
  check_content(json, what);
  message.learns = learns(json, what);
  message.has_think_tag = contains_think_tag(json);
  const auto number = static_cast<int32_t>(index);
  Dict fields;
  const auto source = [&](const std::string& name) {
    return Source{.message = number, .field = field_of(name)};
  };
  // As transformers does: the reasoning under the names that templates read.
  const Json* reasoning = nullptr;
  for (const char* name : kReasoningNames) {
    if (reasoning == nullptr && has_value(json, name)) reasoning = &json[name];
  }
  const Value reasoning_value =
      reasoning != nullptr ? Value::from_json(*reasoning, source("thinking")) : Value();
  if (reasoning != nullptr && reasoning->is_string())
    message.reasoning = reasoning->get<std::string>();
  if (reasoning != nullptr && !json.contains("thinking"))
    fields.items.emplace_back("thinking", reasoning_value);
  for (const auto& [name, value] : json.items()) {
    if (name == "train" || name == "weight") continue;
    const bool is_copy = reasoning != nullptr && name == "reasoning_content";
    fields.items.emplace_back(name,
                              is_copy ? reasoning_value : Value::from_json(value, source(name)));
  }
  if (reasoning != nullptr && !json.contains("reasoning_content")) {
    fields.items.emplace_back("reasoning_content", reasoning_value);
  }
  message.fields = Value(std::move(fields));
  return message;
}

void append_messages(std::vector<Message>& messages, const Json& list, const std::string& column,
                     const ConversationNames& names) {
  if (!is_list_of_objects(list)) fail("'" + column + "' must be a list of messages");
  for (const Json& item : list) {
    const std::string what = format_text("message {} of '{}': ", messages.size() + 1, column);
    const bool has_role = item.contains("role") || !item.contains(names.role);
    messages.push_back(
        make_message(has_role ? item : from_value(item, names, what), messages.size(), what));
  }
}

void append_text(std::vector<Message>& messages, const char* role, const std::string& text) {
  const Json json = {{"role", role}, {"content", text}};
  messages.push_back(make_message(json, messages.size(), "message: "));
}

// OpenAI's former name of the column 'tools', whose items are bare functions.
constexpr const char* kFormerTools = "functions";

// Returns a column's list of functions; null if there is none.
Json list_of_tools(const Json& row, const std::string& column) {
  if (!has_value(row, column)) return nullptr;
  Json tools = parsed(row[column], "'" + column + "'");
  if (tools.is_null() || (tools.is_array() && tools.empty())) return nullptr;
  if (!is_list_of_objects(tools)) fail("'" + column + "' must be a list of functions");
  return tools;
}

Value read_tools(const Json& row, const std::string& column) {
  Json tools = list_of_tools(row, column);
  const Json former = column == kFormerTools ? Json() : list_of_tools(row, kFormerTools);
  if (!tools.is_null() && !former.is_null()) {
    fail("the row has both '" + column + "' and 'functions', its former name; keep one");
  }
  if (!former.is_null()) {
    tools = Json::array();
    for (const Json& function : former) {
      tools.push_back({{"type", "function"}, {"function", function}});
    }
  }
  return tools.is_null() ? Value(None{}) : Value::from_json(tools);
}

Conversation read_alpaca(const Json& row, const ConversationNames& names) {
  Conversation conversation;
  for (const Json& message : alpaca_question(row, names)) {
    append_text(conversation.messages, message["role"].get_ref<const std::string&>().c_str(),
                message["content"].get<std::string>());
  }
  conversation.completion = conversation.messages.size();
  append_text(conversation.messages, "assistant", text_of(row, names.response, ""));
  return conversation;
}

Conversation read_prompt(const Json& row) {
  Conversation conversation;
  const auto list_of = [&](const char* name) {
    const Json& value = row[name];
    const bool is_json = value.is_string() && value.get_ref<const std::string&>().starts_with("[{");
    return is_json ? parsed(value, std::string("'") + name + "'") : value;
  };
  const Json prompt = list_of("prompt");
  const Json completion = list_of("completion");
  if (prompt.is_string() && completion.is_string()) {
    conversation.prompt = prompt.get<std::string>();
    conversation.text = completion.get<std::string>();
    return conversation;
  }
  if (!prompt.is_array()) fail("'prompt' must be text or a list of messages, as 'completion' is");
  append_messages(conversation.messages, prompt, "prompt", {});
  conversation.completion = conversation.messages.size();
  if (completion.is_string()) {
    append_text(conversation.messages, "assistant", completion.get<std::string>());
  } else {
    append_messages(conversation.messages, completion, "completion", {});
  }
  return conversation;
}

// Which of the five shapes a row has.
enum class Shape { kNone, kMessages, kConversations, kPrompt, kAlpaca, kText };

Shape shape_of(const Json& row, const ConversationNames& names) {
  if (has_value(row, "messages")) return Shape::kMessages;
  if (has_value(row, names.messages)) return Shape::kConversations;
  if (has_value(row, "prompt") && has_value(row, "completion")) return Shape::kPrompt;
  if (has_value(row, names.prompt) && row.contains(names.response)) return Shape::kAlpaca;
  return has_value(row, "text") ? Shape::kText : Shape::kNone;
}

}  // namespace

Json alpaca_question(const Json& row, const ConversationNames& names) {
  Json messages = Json::array();
  const auto add = [&](const char* role, std::string text) {
    messages.push_back({{"role", role}, {"content", std::move(text)}});
  };
  const std::string system = text_of(row, names.system, "");
  if (!system.empty()) add("system", system);
  if (has_value(row, names.history)) {
    const Json history = parsed(row[names.history], "'" + names.history + "'");
    if (!history.is_array() && !history.is_null())
      fail("'" + names.history + "' must be a list of pairs");
    for (const Json& pair : history) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        fail("'" + names.history + "' must be a list of pairs of a question and an answer");
      }
      add("user", pair[0].get<std::string>());
      add("assistant", pair[1].get<std::string>());
    }
  }
  std::string question = text_of(row, names.prompt, "");
  const std::string query = text_of(row, names.query, "");
  if (!query.empty()) question += question.empty() ? query : "\n" + query;
  add("user", std::move(question));
  return messages;
}

std::string conversation_columns(const Json& row, const ConversationNames& names) {
  switch (shape_of(row, names)) {
    case Shape::kMessages:
      return "messages";
    case Shape::kConversations:
      return names.messages;
    case Shape::kPrompt:
      return "prompt, completion";
    case Shape::kAlpaca:
      return names.prompt + ", " + names.response;
    case Shape::kText:
      return "text";
    default:
      return "";
  }
}

bool has_empty_answer(const Conversation& conversation) {
  if (conversation.messages.empty()) return conversation.prompt && conversation.text.empty();
  return std::ranges::any_of(conversation.messages, [](const Message& message) {
    const bool is_answer = message.role == "assistant" || message.role == "model";
    if (!is_answer || !message.learns || message.has_tool_calls) return false;
    if (!message.reasoning.value_or("").empty()) return false;
    const Dict* fields = message.fields.dict();
    const Value* content = fields == nullptr ? nullptr : find(*fields, std::string_view("content"));
    if (content == nullptr || content->list() == nullptr) {
      return content == nullptr || !content->truth();
    }
    return std::ranges::all_of(content->list()->items, [](const Value& part) {
      const Value* text =
          part.dict() == nullptr ? nullptr : find(*part.dict(), std::string_view("text"));
      return text == nullptr || !text->truth();
    });
  });
}

Conversation read_conversation(const Json& row, const ConversationNames& names) {
  Conversation conversation;
  const Shape shape = shape_of(row, names);
  switch (shape) {
    case Shape::kMessages:
    case Shape::kConversations: {
      const std::string column = shape == Shape::kMessages ? "messages" : names.messages;
      const Json list = parsed(row[column], "'" + column + "'");
      const std::string system = text_of(row, names.system, "");
      const bool has_system = list.is_array() && !list.empty() && list[0].is_object() &&
                              (list[0].value("role", Json()) == "system" ||
                               list[0].value(names.role, Json()) == names.system_role);
      if (!system.empty() && !has_system) append_text(conversation.messages, "system", system);
      append_messages(conversation.messages, list, column, names);
      if (list.empty()) fail("'" + column + "' has no messages");
      break;
    }
    case Shape::kPrompt:
      conversation = read_prompt(row);
      break;
    case Shape::kAlpaca:
      conversation = read_alpaca(row, names);
      break;
    case Shape::kText:
      conversation.text = text_of(row, "text", "");
      break;
    case Shape::kNone: {
      if (has_value(row, "chosen") && has_value(row, "rejected")) {
        fail(
            "the row is preference data (chosen, rejected): task dpo compares the two; to learn "
            "the "
            "preferred answers alone, write them as 'messages', or as 'prompt' and 'completion'");
      }
      std::vector<std::string> columns;
      for (const auto& [name, value] : row.items()) {
        columns.push_back("'" + name + (value.is_null() ? "' (null)" : "'"));
      }
      fail(
          "the row is in none of the shapes of chat data: 'messages' (role, content), "
          "'conversations' (from, value), 'prompt' with 'completion', 'instruction' with 'output', "
          "or 'text'; its columns are " +
          (columns.empty() ? "none" : join(columns)));
    }
  }
  if (!conversation.messages.empty()) conversation.tools = read_tools(row, names.tools);
  if (has_value(row, "chat_template_kwargs")) {
    const Json kwargs = parsed(row["chat_template_kwargs"], "'chat_template_kwargs'");
    if (!kwargs.is_object() && !kwargs.is_null()) fail("'chat_template_kwargs' must be an object");
    for (const auto& [name, value] : kwargs.items()) {
      conversation.template_kwargs.emplace_back(name, Value::from_json(value));
    }
  }
  return conversation;
}

}  // namespace finetune::chat
