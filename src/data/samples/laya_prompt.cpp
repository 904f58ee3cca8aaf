// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/decision_prompt.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

// The numbers of laya's build_head().
constexpr size_t kLongestOption = 48;  // tokens, without its mark
constexpr int64_t kLeastQuestion =
    16;                              // what options may leave to the question before they are cut
constexpr int64_t kLeastOption = 4;  // to which they are cut, with their marks
constexpr int64_t kLeastHead = 8;    // tokens of the instructions that always stay

std::string plain_text(const Json& json) {
  return json.is_string() ? json.get<std::string>()
                          : chat::to_json(chat::Value::from_json(json), {}).str();
}

// What an option is called, by its index in the question.
std::string option_text(const DecisionQuestion& question, size_t index) {
  const Json description = Json::parse(question.descriptions[index]);
  const std::string& name = question.options[index];
  const bool is_described = !description.is_null() && description != Json("");
  switch (question.type) {
    case QuestionType::kChoice:
      return is_described ? name + ": " + plain_text(description) : name;
    case QuestionType::kScore:
      return "level " + name + ": " + plain_text(description);
    case QuestionType::kNoul:
      break;
  }
  if (is_described) return name + ": " + plain_text(description);
  return name +
         (name == "true" ? ": yes, the statement holds" : ": no, the statement does not hold");
}

int32_t id_of(const std::optional<SpecialTokens::Token>& token, const char* name) {
  if (token && token->id >= 0) return token->id;
  throw Error(ErrorKind::kConfig, std::string("the tokenizer has no ") + name +
                                      "_token, which the questions of a laya model are made with; "
                                      "start from an encoder such as ModernBERT");
}

void keep_first(Ids& ids, int64_t most) {
  ids.resize(static_cast<size_t>(std::min<int64_t>(std::ssize(ids), most)));
}

}  // namespace

LayaPrompter::LayaPrompter(const Tokenizer& tokenizer, LayaPrompterOptions options)
    : tokenizer_(tokenizer),
      options_(options),
      cls_(id_of(tokenizer.special_tokens().cls, "cls")),
      sep_(id_of(tokenizer.special_tokens().sep, "sep")),
      mask_(id_of(tokenizer.special_tokens().mask, "mask")),
      mask_text_(tokenizer.special_tokens().mask->text) {}

Ids LayaPrompter::encode(std::string text) const {
  for (size_t at = 0; (at = text.find(mask_text_, at)) != std::string::npos; ++at) {
    text.replace(at, mask_text_.size(), " ");
  }
  const TextRange all = {.begin = 0, .end = std::ssize(text)};
  return tokenizer_.encode_with_literals(text, std::span(&all, 1)).ids;
}

DecisionPrompt LayaPrompter::prompt(const Json& state,
                                    std::span<const DecisionQuestion> questions) const {
  FT_CHECK(questions.size() == 1, "a prompt has one question");
  const DecisionQuestion& question = questions.front();
  const Json instructions = Json::parse(question.instructions);
  if (instructions.empty() || instructions == Json("")) {
    throw Error(ErrorKind::kData, "question '" + question.name +
                                      "': has no instructions, which laya asks for; write what is "
                                      "to be answered");
  }
  check_numbers(state);
  if (state.is_null()) {
    throw Error(ErrorKind::kData, "state is null, which laya refuses; give a text or an object");
  }
  const auto count = std::ssize(question.options);
  std::vector<Ids> options;
  std::set<Ids> whole;
  int64_t left = options_.head_max_len;
  for (size_t i = 0; i < question.options.size(); ++i) {
    Ids ids = encode(" " + option_text(question, i));
    whole.insert(ids);
    ids.resize(std::min(ids.size(), kLongestOption));
    ids.insert(ids.begin(), mask_);
    left -= std::ssize(ids);
    options.push_back(std::move(ids));
  }
  if (left < kLeastQuestion) {
    const int64_t most = std::max(kLeastOption, (options_.head_max_len - kLeastQuestion) / count);
    left = options_.head_max_len;
    for (Ids& ids : options) {
      keep_first(ids, most);
      left -= std::ssize(ids);
    }
  }
  Ids head = encode(std::string(name_of(question.type)) + " question: " + plain_text(instructions));
  keep_first(head, std::max(kLeastHead, left));

  DecisionPrompt prompt;
  prompt.ids = {cls_};
  prompt.ids.insert(prompt.ids.end(), head.begin(), head.end());
  prompt.ids.push_back(sep_);
  prompt.marks.emplace_back();
  for (const Ids& ids : options) {
    prompt.marks.front().push_back(std::ssize(prompt.ids) + 1);
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  }
  prompt.ids.push_back(sep_);
  const Ids of_state = encode(plain_text(state));
  const int64_t room =
      std::clamp<int64_t>(options_.max_len - std::ssize(prompt.ids) - 1, 0, std::ssize(of_state));
  // A list is of turns, whose last ones count.
  const auto first = state.is_array() ? of_state.end() - room : of_state.begin();
  prompt.ids.insert(prompt.ids.end(), first, first + room);
  prompt.ids.push_back(sep_);
  keep_first(prompt.ids, options_.max_len);
  if (prompt.marks.front().back() > options_.max_len) {
    prompt.unreadable =
        format_text("its {} options need more than the {} tokens of max_len; give fewer", count,
                    options_.max_len);
  } else if (whole.size() < options.size()) {
    prompt.unreadable =
        format_text("two of its {} options have the same tokens; rename one", count);
  } else if (std::set<Ids>(options.begin(), options.end()).size() < options.size()) {
    prompt.unreadable = format_text(
        "two of its {} options begin with the same tokens, and only {} of each are read "
        "(head_max_len is {}); let them begin otherwise, or give fewer",
        count, std::ranges::max(options, {}, &Ids::size).size() - 1, options_.head_max_len);
  }
  return prompt;
}

}  // namespace finetune
