// SPDX-License-Identifier: MIT
#include "data/samples/answer_rows.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "data/columns/json_row.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"
#include "finetune/chat/conversation.h"

namespace finetune {
namespace {

using Json = Row::Json;

bool is_message(const Json& value) {
  return value.is_object() && (value.contains("role") || value.contains("from"));
}

// A column's text or messages; of files whose values are all text, also messages as JSON.
Json text_or_messages(const Row& row, const char* column) {
  Json value = row.at(column);
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.starts_with("[{")) return parse_json(text, row.position() + ": " + column);
    return value;
  }
  if (is_message(value)) return Json::array({std::move(value)});
  if (value.is_array() && std::ranges::all_of(value, is_message)) return value;
  row.fail(std::string("column '") + column + "' holds " + describe(value) +
           "; it is a text or a list of messages");
}

std::string role_of(const Json& message) {
  for (const char* name : {"role", "from"}) {
    const auto found = message.find(name);
    if (found != message.end() && found->is_string()) return found->get<std::string>();
  }
  return "";
}

bool is_system(const Json& message) { return role_of(message) == "system"; }

bool asks(const Json& message) {
  const std::string role = role_of(message);
  return role == "user" || role == "human" || role == "system";
}

// Whether a side is a conversation with its prompt, not an answer alone.
bool is_whole(const Json& side) { return side.is_array() && !side.empty() && asks(side.front()); }

std::string content_of(const Json& message) {
  for (const char* name : {"content", "value"}) {
    const auto found = message.find(name);
    if (found != message.end())
      return found->is_string() ? found->get<std::string>() : found->dump();
  }
  return "";
}

// Whether the messages of a prompt are the first ones, whatever else they say of themselves.
bool begins_with(const Json& messages, const Json& prompt) {
  return messages.size() >= prompt.size() &&
         std::equal(prompt.begin(), prompt.end(), messages.begin(),
                    [](const Json& a, const Json& b) {
                      return role_of(a) == role_of(b) && content_of(a) == content_of(b);
                    });
}

Json messages_from(const Json& messages, size_t first) {
  Json rest = Json::array();
  for (size_t i = first; i < messages.size(); ++i) rest.push_back(messages[i]);
  return rest;
}

Json first_messages(const Json& messages, size_t count) {
  Json first = Json::array();
  for (size_t i = 0; i < count; ++i) first.push_back(messages[i]);
  return first;
}

// Whether a message has this text, or is the end or the beginning of it.
bool has_text(const Json& messages, std::string_view text) {
  const std::string_view wanted = trimmed(text);
  return std::ranges::any_of(messages, [&](const Json& message) {
    const std::string content = content_of(message);
    const std::string_view own = trimmed(content);
    return !own.empty() && (own == wanted || wanted.ends_with(own) || wanted.starts_with(own));
  });
}

// The same of the last message of a list, or of a text.
bool has_prompt(const Json& messages, const Json& prompt) {
  if (prompt.is_string()) return has_text(messages, prompt.get_ref<const std::string&>());
  return prompt.empty() || has_text(messages, content_of(prompt.back()));
}

// The number of characters' bytes that both texts begin with, as TRL's extract_prompt finds it: of
// a text that the other begins with all but the last character, and no space at the end.
size_t common_text(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t common = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const bool is_all = common == shorter;
  const auto is_inside = [&](size_t at) {
    return at < a.size() && (static_cast<unsigned char>(a[at]) & 0xC0U) == 0x80U;
  };
  if (is_all && common > 0) --common;
  while (common > 0 && is_inside(common)) --common;
  if (!is_all && common > 0 && a[common - 1] == ' ') --common;
  return common;
}

// Takes what both sides begin with from them, as the prompt.
void extract_prompt(PreferencePair& pair, const Row& row) {
  if (pair.chosen.is_string()) {
    const auto chosen = pair.chosen.get<std::string>();
    const auto rejected = pair.rejected.get<std::string>();
    const size_t common = common_text(chosen, rejected);
    pair.prompt = chosen.substr(0, common);
    pair.chosen = chosen.substr(common);
    pair.rejected = rejected.substr(common);
    return;
  }
  const size_t shorter = std::min(pair.chosen.size(), pair.rejected.size());
  size_t common = 0;
  while (common < shorter && pair.chosen[common] == pair.rejected[common]) ++common;
  if (common == shorter && common > 0) --common;
  if (common == 0 && shorter > 0) {
    row.fail(
        "'chosen' and 'rejected' begin with different messages, so that they have no prompt "
        "in common");
  }
  pair.prompt = first_messages(pair.chosen, common);
  pair.chosen = messages_from(pair.chosen, common);
  pair.rejected = messages_from(pair.rejected, common);
}

bool has(const Row& row, const char* column) {
  return row.find(column) && !row.at(column).is_null();
}

Json message(const char* role, std::string text) {
  return {{"role", role}, {"content", std::move(text)}};
}

// The prompt of a row whose columns are LLaMA-Factory's (conversations; instruction) or Orca's
// (question); null: the row has others.
Json messages_before(const Row& row) {
  for (const char* column : {"conversations", "messages"}) {
    if (!has(row, column)) continue;
    const Json list = text_or_messages(row, column);
    if (!list.is_array()) row.fail(std::string("column '") + column + "' is a list of messages");
    return list;
  }
  Json columns;  // in Alpaca's spelling
  if (has(row, "question") && !has(row, "instruction")) {
    columns["instruction"] = row.at("question");
  } else if (!has(row, "instruction") && !has(row, "input")) {
    return nullptr;
  }
  for (const char* column : {"history", "instruction", "input"}) {
    if (has(row, column)) columns[column] = row.at(column);
  }
  try {
    return chat::alpaca_question(columns);
  } catch (const Error& error) {
    row.fail(error.what());
  }
}

// The prompt of the row's columns, null where the answers contain it. A text stays one, unless a
// system message comes before it.
Json prompt_of(const Row& row) {
  if (!has(row, "prompt")) return messages_before(row);
  return text_or_messages(row, "prompt");
}

// The same where the answers are whole conversations, which contain it: as far as it can be
// compared with theirs.
Json prompt_beside(const Row& row) {
  if (has(row, "prompt")) return text_or_messages(row, "prompt");
  for (const char* column : {"question", "instruction", "input"}) {
    if (has(row, column)) return row.at(column).is_string() ? row.at(column) : Json(nullptr);
  }
  return messages_before(row);
}

// Puts the column `system` before a prompt of messages that has none.
void add_system(Json& prompt, const Row& row) {
  if (!has(row, "system") || row.text("system").empty()) return;
  if (prompt.is_string()) prompt = Json::array({message("user", prompt.get<std::string>())});
  if (!prompt.empty() && is_system(prompt.front())) return;
  prompt.insert(prompt.begin(), message("system", row.text("system")));
}

Json as_messages(Json side) {
  if (!side.is_string()) return side;
  return Json::array({message("assistant", side.get<std::string>())});
}

// Throws where the answers are texts, and the prompt is not in the column where it is looked for.
void check_prompt_column(const Row& row) {
  if (row.find("prompt")) {
    row.fail("column 'prompt' is null; rows without a prompt do not have the column");
  }
  const std::string similar = did_you_mean("prompt", row.names());
  if (!similar.empty()) {
    row.refuse("there is no column 'prompt'" + similar + "; the row has " +
               column_names(row.columns()));
  }
}

// Whether the texts of both sides repeat the prompt.
bool repeat(const Json& prompt, std::initializer_list<const Json*> sides) {
  if (!prompt.is_string()) return false;
  const std::string_view text = trimmed(prompt.get_ref<const std::string&>());
  return !text.empty() && std::ranges::all_of(sides, [&](const Json* side) {
    return side->is_string() && trimmed(side->get_ref<const std::string&>()).starts_with(text);
  });
}

// Finds the prompt of conversations that contain it.
void take_prompt(PreferencePair& pair, const Row& row) {
  const Json prompt = std::exchange(pair.prompt, nullptr);
  const bool is_there =
      prompt.is_array() && begins_with(pair.chosen, prompt) && begins_with(pair.rejected, prompt);
  if (!is_there) {
    extract_prompt(pair, row);
    pair.has_other_prompt = !prompt.is_null() && !has_prompt(pair.prompt, prompt);
    return;
  }
  pair.prompt = first_messages(pair.chosen, prompt.size());
  pair.chosen = messages_from(pair.chosen, prompt.size());
  pair.rejected = messages_from(pair.rejected, prompt.size());
}

// Answers to different questions do not compare.
void check_prompts(PreferencePair& pair, const Row& row) {
  for (const Json* side : {&pair.chosen, &pair.rejected}) {
    if (!side->is_array() || side->empty()) continue;
    if (asks(side->front())) {
      row.fail(
          "'chosen' and 'rejected' answer different prompts: after the messages that both "
          "begin with, the next is of '" +
          role_of(side->front()) + "', not an answer");
    }
    if (std::any_of(side->begin(), side->end(), asks)) pair.has_questions = true;
  }
}

bool label_of(const Row& row) {
  std::optional<bool> label;
  for (const char* column : {"label", "kto_tag"}) {
    if (!has(row, column)) continue;
    const Json& value = row.at(column);
    const bool is_true =
        value == true || value == 1 || value == "true" || value == "True" || value == "1";
    const bool is_false =
        value == false || value == 0 || value == "false" || value == "False" || value == "0";
    if (!is_true && !is_false) {
      row.fail(std::string("column '") + column + "' holds " + describe(value) +
               "; it is true for a desirable answer and false for another");
    }
    if (label.value_or(is_true) != is_true) row.fail("columns 'label' and 'kto_tag' differ");
    label = is_true;
  }
  if (!label) row.fail("there is no column 'label' (true for a desirable answer)");
  return *label;
}

// Splits a conversation: the answer is what follows the last message that asks.
void split_conversation(LabelledAnswer& answer, const Row& row) {
  const Json messages = std::exchange(answer.text, nullptr);
  size_t first = messages.size();
  while (first > 0 && !asks(messages[first - 1])) --first;
  if (first == messages.size()) {
    row.fail("the conversation ends with a message of '" + role_of(messages.back()) +
             "', not with an answer");
  }
  const Json prompt = std::exchange(answer.prompt, first_messages(messages, first));
  answer.text = messages_from(messages, first);
  answer.has_other_prompt = !prompt.is_null() && !has_prompt(answer.prompt, prompt);
}

LabelledAnswer labelled_answer_of(const Row& row) {
  LabelledAnswer answer{.prompt = nullptr, .text = nullptr, .is_desirable = label_of(row)};
  if (has(row, "completion")) {
    answer.text = text_or_messages(row, "completion");
    answer.prompt = is_whole(answer.text) ? prompt_beside(row) : prompt_of(row);
    if (is_whole(answer.text)) {
      split_conversation(answer, row);
    } else if (answer.prompt.is_null()) {
      check_prompt_column(row);
      answer.prompt = answer.text.is_string() ? Json("") : Json::array();
    }
  } else if (has(row, "output") && has(row, "instruction")) {
    answer.prompt = messages_before(row);
    answer.text = text_or_messages(row, "output");
  } else {
    answer.prompt = messages_before(row);
    if (!answer.prompt.is_array() || answer.prompt.empty()) {
      row.fail("there is no column 'completion', and no conversation that ends with an answer");
    }
    if (asks(answer.prompt.back())) {
      row.fail("the conversation ends with a message of '" + role_of(answer.prompt.back()) +
               "', not with an answer");
    }
    if (answer.prompt.size() < 2) row.fail("the conversation is an answer alone, to no prompt");
    answer.text = Json::array({answer.prompt.back()});
    answer.prompt.erase(answer.prompt.size() - 1);
  }
  add_system(answer.prompt, row);
  if (answer.prompt.is_array()) answer.text = as_messages(std::move(answer.text));
  if (answer.prompt.is_string() && answer.text.is_array()) {
    answer.prompt = Json::array({message("user", answer.prompt.get<std::string>())});
  }
  return answer;
}

}  // namespace

PreferencePair preference_pair_of(const Row& row) {
  PreferencePair pair{.prompt = nullptr,
                      .chosen = text_or_messages(row, "chosen"),
                      .rejected = text_or_messages(row, "rejected")};
  const bool has_prompts = is_whole(pair.chosen) && is_whole(pair.rejected);
  pair.prompt = has_prompts ? prompt_beside(row) : prompt_of(row);
  const bool is_text = pair.chosen.is_string() && pair.rejected.is_string();
  if (!is_text || pair.prompt.is_array()) {
    pair.chosen = as_messages(std::move(pair.chosen));
    pair.rejected = as_messages(std::move(pair.rejected));
  }
  if (has_prompts) {
    take_prompt(pair, row);
  } else if (pair.prompt.is_null()) {
    if (is_text) check_prompt_column(row);
    extract_prompt(pair, row);
    if (is_text) return pair;
  }
  add_system(pair.prompt, row);
  pair.repeats_prompt = repeat(pair.prompt, {&pair.chosen, &pair.rejected});
  if (pair.prompt.is_array()) {
    pair.chosen = as_messages(std::move(pair.chosen));
    pair.rejected = as_messages(std::move(pair.rejected));
  } else if (!is_text) {
    pair.prompt = Json::array({message("user", pair.prompt.get<std::string>())});
  }
  check_prompts(pair, row);
  return pair;
}

std::vector<LabelledAnswer> labelled_answers_of(const Row& row) {
  if (!has(row, "chosen") || !has(row, "rejected")) return {labelled_answer_of(row)};
  const PreferencePair pair = preference_pair_of(row);
  LabelledAnswer chosen{.prompt = pair.prompt,
                        .text = pair.chosen,
                        .is_desirable = true,
                        .is_of_pair = true,
                        .has_questions = pair.has_questions,
                        .has_other_prompt = pair.has_other_prompt};
  LabelledAnswer rejected = chosen;
  rejected.text = pair.rejected;
  rejected.is_desirable = false;
  return {std::move(chosen), std::move(rejected)};
}

bool is_empty_answer(const Json& answer) {
  if (answer.is_string()) return answer.get_ref<const std::string&>().empty();
  return std::ranges::all_of(answer, [](const Json& message) {
    return std::ranges::all_of(message.items(), [](const auto& item) {
      const bool is_text = item.key() != "role" && item.key() != "from";
      return !is_text || item.value().is_null() || item.value().empty() || item.value() == "";
    });
  });
}

std::string unread_texts(const Row& row) {
  const auto is_text = [&](const char* column) {
    return has(row, column) && row.at(column).is_string();
  };
  constexpr std::array kPrompts = {"prompt",   "conversations", "messages",
                                   "question", "instruction",   "input"};
  const bool is_named =
      std::ranges::any_of(kPrompts, [&](const char* column) { return has(row, column); });
  const bool is_implicit =
      !is_named && ((is_text("chosen") && is_text("rejected")) || is_text("completion"));
  if (!is_implicit) return "";
  Json unread = Json::object();
  for (const auto& [name, value] : row.columns().items()) {
    const std::string plain = plain_column_name(name);
    const bool is_read = plain == "chosen" || plain == "rejected" || plain == "completion" ||
                         plain == "label" || plain == "kto_tag" || plain == "tools";
    if (!is_read && value.is_string() && holds_text(row, name)) unread[name] = value;
  }
  return unread.empty() ? "" : column_names(unread);
}

}  // namespace finetune
