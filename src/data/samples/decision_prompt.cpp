// SPDX-License-Identifier: MIT
#include "finetune/data/decision_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using chat::Source;
using chat::TracedText;
using chat::Value;

constexpr std::string_view kMark = "<|mark|>";
constexpr std::string_view kSplit = "<|split|>";

constexpr Source kRequest = {.message = 0, .field = 0, .generated = false};

// transformers' DECISION_PROMPT, which its models and servers share.
constexpr const char* kGenericPrompt =
    R"({%- macro text(x) %}{{ "" if x is none else x if x is string else x|tojson }}{% endmacro -%}
{%- set ns = namespace(lines=[text(question.instructions)]) -%}
{%- for option in question.options -%}
    {%- set label, answer = question.labels[loop.index0], text(question.descriptions[loop.index0]) -%}
    {%- if question.type == "noul" -%}
        {%- set answer = answer or (option if question.labels != ["Yes", "No"] else "") -%}
        {%- set ns.lines = ns.lines + ([label ~ ": " ~ answer] if answer else []) -%}
    {%- else -%}
        {%- set answer = (option ~ ": " ~ answer if answer else option) if question.type == "choice" else answer -%}
        {%- set ns.lines = ns.lines + [label ~ ". " ~ answer] -%}
    {%- endif -%}
{%- endfor -%}
{{- text(state) ~ "\n\n" ~ ns.lines|select|join("\n") ~ "\n" -}}
{%- if question.type == "noul" -%}
    {{- "Answer " ~ question.labels[0] ~ " or " ~ question.labels[1] ~ " only." -}}
{%- else -%}
    {%- set kind = "letter" if question.labels == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: question.labels|length]|list else "label" -%}
    {{- "Answer with the " ~ kind ~ " of the " ~ ("option" if question.type == "choice" else "level") -}}
    {{- " that fits best (" ~ question.labels[0] ~ " to " ~ question.labels[-1] ~ ") only." -}}
{%- endif -%})";

const chat::ChatTemplate& generic_prompt() {
  static const chat::ChatTemplate prompt(kGenericPrompt, "the generic decision prompt");
  return prompt;
}

// A user's message whose text is the request's.
Value user_message(const TracedText& content) {
  chat::Dict message;
  message.items.emplace_back(Value("role"), Value("user"));
  message.items.emplace_back(Value("content"), Value(content));
  chat::List messages;
  messages.items.push_back(std::move(message));
  return messages;
}

// The sentinels that a request spells, for templates that do not sanitize.
Json without_sentinels(const Json& json) {
  std::string text = json.dump();
  for (const std::string_view sentinel : {kMark, kSplit}) {
    for (size_t at = text.find(sentinel); at != std::string::npos; at = text.find(sentinel, at)) {
      text.erase(at, sentinel.size());
    }
  }
  return Json::parse(text);
}

}  // namespace

TemplatePrompter::TemplatePrompter(const Tokenizer& tokenizer, TemplatePrompterOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), newline_(tokenizer.encode("\n")) {
  if (options_.decision_template != nullptr) {
    asks_together_ = options_.decision_template->uses("questions");
  } else if (options_.chat_template == nullptr) {
    throw Error(ErrorKind::kConfig,
                "the model has neither decision_template.jinja nor a chat template, so that "
                "questions have no form; set chat_template_path, for example to chatml");
  }
  const chat::ChatTemplate& of_tokens =
      options_.decision_template != nullptr ? *options_.decision_template : *options_.chat_template;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    std::string token = tokenizer.id_to_token(id);
    const bool is_added = tokenizer.is_special(id) ||
                          (token.starts_with('<') && token.ends_with('>') && token.size() > 2 &&
                           of_tokens.text().find(token) != std::string::npos &&
                           tokenizer.encode(token) == std::vector<int32_t>{id});
    if (is_added) control_tokens_.push_back(std::move(token));
  }
  for (const std::string_view sentinel : {kMark, kSplit}) control_tokens_.emplace_back(sentinel);
  std::ranges::stable_sort(control_tokens_, std::ranges::greater(), &std::string::size);
  std::erase(control_tokens_, "");
  for (const std::string& token : control_tokens_) {
    starts_control_[static_cast<unsigned char>(token.front())] = true;
  }
}

TracedText TemplatePrompter::render(const Json& state,
                                    std::span<const DecisionQuestion> questions) const {
  chat::Variables variables{.values = options_.variables, .date = options_.date};
  const auto set = [&](const char* name, Value value) {
    std::erase_if(variables.values, [&](const auto& variable) { return variable.first == name; });
    variables.values.emplace_back(name, std::move(value));
  };
  const auto value_of = [&](const Json& json) {
    return Value::from_json(options_.sanitize_control_tokens ? json : without_sentinels(json),
                            kRequest);
  };
  if (options_.decision_template == nullptr) {
    chat::Variables inner;
    inner.values.emplace_back("state", Value::from_json(state, kRequest));
    inner.values.emplace_back("question", Value::from_json(questions.front().json(), kRequest));
    const std::string content = generic_prompt().render(inner).str();
    set("messages", user_message(TracedText(content, kRequest)));
  } else {
    set("messages", user_message(TracedText("")));
    const chat::ChatTemplate& own = *options_.decision_template;
    if (own.uses("state")) set("state", value_of(state));
    if (own.uses("question")) set("question", value_of(questions.front().json()));
    if (asks_together_) {
      Json all = Json::array();
      for (const DecisionQuestion& question : questions) all.push_back(question.json());
      set("questions", value_of(all));
    }
  }
  set("tools", chat::None{});
  set("documents", chat::None{});
  set("enable_thinking", false);
  set("add_generation_prompt", true);
  const chat::ChatTemplate& outer =
      options_.decision_template != nullptr ? *options_.decision_template : *options_.chat_template;
  return outer.render(variables);
}

const std::string* TemplatePrompter::control_token_at(const std::string& text, size_t at,
                                                      size_t end) const {
  if (!starts_control_[static_cast<unsigned char>(text[at])]) return nullptr;
  for (const std::string& token : control_tokens_) {
    if (at + token.size() <= end && text.compare(at, token.size(), token) == 0) return &token;
  }
  return nullptr;
}

// transformers' encode_marked_chat(): pieces are encoded each, a control token of the request as
// plain text. After a line break, so that no space is put before a piece.
void TemplatePrompter::append(const std::string& piece, bool is_text, DecisionPrompt& prompt,
                              bool is_first) const {
  if (piece.empty()) return;
  const std::string text = is_first ? piece : "\n" + piece;
  const TextRange all = {.begin = 0, .end = std::ssize(text)};
  std::vector<int32_t> ids = is_text ? tokenizer_.encode_with_literals(text, std::span(&all, 1)).ids
                                     : tokenizer_.encode(text);
  if (!is_first) {
    const bool has_newline =
        std::ranges::equal(newline_, std::span(ids).first(std::min(ids.size(), newline_.size())));
    if (has_newline) {
      ids.erase(ids.begin(), ids.begin() + std::ssize(newline_));
    } else {
      ids = is_text
                ? tokenizer_
                      .encode_with_literals(piece, std::vector<TextRange>{{0, std::ssize(piece)}})
                      .ids
                : tokenizer_.encode(piece);
    }
  }
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
}

DecisionPrompt TemplatePrompter::encode(const TracedText& traced) const {
  const std::string& text = traced.str();
  DecisionPrompt prompt;
  std::string piece;
  bool is_first = true;
  const auto flush = [&](bool is_text) {
    append(piece, is_text, prompt, is_first);
    is_first = is_first && piece.empty();
    piece.clear();
  };
  for (const TracedText::Piece& range : traced.pieces()) {
    const bool is_template = range.source.message == Source::kTemplate;
    const bool is_literal = !is_template && options_.sanitize_control_tokens;
    for (size_t at = range.begin; at < range.end;) {
      const std::string_view rest = std::string_view(text).substr(at, range.end - at);
      if (is_template && (rest.starts_with(kMark) || rest.starts_with(kSplit))) {
        flush(false);
        if (rest.starts_with(kMark)) prompt.marks.push_back({std::ssize(prompt.ids)});
        at += rest.starts_with(kMark) ? kMark.size() : kSplit.size();
      } else if (const auto* token = is_literal ? control_token_at(text, at, range.end) : nullptr) {
        flush(false);
        piece = *token;
        flush(true);
        at += token->size();
      } else {
        piece += text[at++];
      }
    }
  }
  flush(false);
  if (prompt.marks.empty()) prompt.marks.push_back({std::ssize(prompt.ids)});
  return prompt;
}

DecisionPrompt TemplatePrompter::prompt(const Json& state,
                                        std::span<const DecisionQuestion> questions) const {
  check_numbers(state);
  DecisionPrompt prompt = encode(render(state, questions));
  const auto wrong = [&](const std::string& what) {
    throw Error(ErrorKind::kData, "the decision template " + what);
  };
  // A mark may follow the last one, which ends what it reads.
  if (prompt.marks.size() < questions.size()) {
    wrong(format_text("marks {} positions of {} questions", prompt.marks.size(), questions.size()));
  }
  prompt.marks.resize(questions.size());
  if (prompt.marks.front().front() < 1) wrong("has a mark before the first token");
  return prompt;
}

void TemplatePrompter::check(const DecisionQuestion& question) const {
  if (!options_.most_options.empty()) {
    const int64_t most = options_.most_options[static_cast<size_t>(question.type)];
    const auto options = std::ssize(question.options);
    if (options <= most) return;
    throw Error(ErrorKind::kData,
                format_text("question '{}': has {} options, and the head scores at most {} of a {}",
                            question.name, options, most, name_of(question.type)));
  }
  std::vector<int32_t> ids;
  for (const std::string& label : question.labels) {
    ids.push_back(label_id(tokenizer_, label));
    if (std::ranges::count(ids, ids.back()) == 1) continue;
    throw Error(ErrorKind::kData,
                format_text("question '{}': two of its labels are the token of '{}'; name others "
                            "in decision.json (labels)",
                            question.name, label));
  }
}

int32_t label_id(const Tokenizer& tokenizer, const std::string& label) {
  const std::vector<int32_t> ids = tokenizer.encode(label);
  const auto& unknown = tokenizer.special_tokens().unk;
  if (ids.size() == 1 && !(unknown && unknown->id == ids.front())) return ids.front();
  throw Error(ErrorKind::kData,
              format_text("the label '{}' of an option is {} tokens of this tokenizer, and its "
                          "score is the logit of one; name others in decision.json (labels)",
                          label, ids.size()));
}

}  // namespace finetune
