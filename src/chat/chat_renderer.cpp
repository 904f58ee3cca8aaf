// SPDX-License-Identifier: MIT
#include "finetune/chat/chat_renderer.h"

#include <algorithm>

#include "chat/arguments.h"
#include "chat/characters.h"
#include "finetune/base/text.h"

namespace finetune::chat {
namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto [first, second] = std::ranges::mismatch(a, b);
  static_cast<void>(second);
  return static_cast<size_t>(first - a.begin());
}

Message probe_message(const char* role, const char* content, int32_t index) {
  Message message;
  message.role = role;
  message.fields = Dict{
      {{Value("role"), Value(TracedText(role, {.message = index, .field = kRoleField}))},
       {Value("content"), Value(TracedText(content, {.message = index, .field = kContentField}))}}};
  return message;
}

bool is_answer(const Message& message) {
  return message.role == "assistant" || message.role == "model";
}

// Sorts ranges and joins those that touch.
std::vector<ByteRange> joined(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::begin);
  std::vector<ByteRange> result;
  for (const ByteRange& range : ranges) {
    if (!result.empty() && range.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, range.end);
    } else if (range.begin < range.end) {
      result.push_back(range);
    }
  }
  return result;
}

// Removes `without` from `ranges`; both ascending and disjoint.
std::vector<ByteRange> difference(const std::vector<ByteRange>& ranges,
                                  const std::vector<ByteRange>& without) {
  std::vector<ByteRange> result;
  auto hole = without.begin();
  for (ByteRange range : ranges) {
    while (hole != without.end() && hole->end <= range.begin) ++hole;
    for (auto next = hole; next != without.end() && next->begin < range.end; ++next) {
      if (next->begin > range.begin) result.push_back({range.begin, next->begin});
      range.begin = std::max(range.begin, next->end);
    }
    if (range.begin < range.end) result.push_back(range);
  }
  return result;
}

}  // namespace

ChatRenderer::ChatRenderer(std::shared_ptr<const ChatTemplate> chat_template, RenderOptions options)
    : template_(std::move(chat_template)), options_(std::move(options)) {
  std::erase(options_.special_tokens, std::string());
  for (const std::string& token : options_.special_tokens) {
    starts_special_[static_cast<unsigned char>(token[0])] = true;
  }
  // A token that another begins with must not hide it.
  std::ranges::sort(options_.special_tokens, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  if (template_ != nullptr) probe();
}

// Finds the generation prompt and the end of a turn in a conversation of one question and one
// answer. A template that refuses it (it may need a system message) has neither.
void ChatRenderer::probe() {
  static constexpr const char* kAnswer = "finetuneprobe";
  Conversation conversation;
  conversation.messages.push_back(probe_message("user", "question", 0));
  conversation.messages.push_back(probe_message("assistant", kAnswer, 1));
  try {
    const std::string without = render_messages(conversation, 1, false).str();
    const std::string with = render_messages(conversation, 1, true).str();
    generation_prompt_ = with.substr(common_prefix(without, with));
    const std::string answered = render_messages(conversation, 2, false).str();
    const size_t answer = answered.rfind(kAnswer);
    if (answer == std::string::npos) return;
    // One special token, or several that follow each other.
    ByteRange token = special_token_after(answered, answer, answered.size());
    const size_t begin = token.begin;
    while (token.begin < token.end) {
      end_of_turn_ = answered.substr(begin, token.end - begin);
      stop_token_ = answered.substr(token.begin, token.end - token.begin);
      const ByteRange next = special_token_after(answered, token.end, answered.size());
      if (next.begin != token.end || next.begin == next.end) break;
      token = next;
    }
  } catch (const Error&) {
    is_probed_ = false;
  }
}

const ChatTemplate& ChatRenderer::template_of(const Conversation& conversation) const {
  return conversation.tools.is_none() ? *template_ : template_->for_tools();
}

TracedText ChatRenderer::render_messages(const Conversation& conversation, size_t count,
                                         bool add_generation_prompt) const {
  Variables variables{.values = options_.variables, .date = options_.date};
  List messages;
  for (size_t i = 0; i < count; ++i) messages.items.push_back(conversation.messages[i].fields);
  const auto set = [&](const char* name, Value value) {
    std::erase_if(variables.values, [&](const auto& variable) { return variable.first == name; });
    variables.values.emplace_back(name, std::move(value));
  };
  for (const auto& [name, value] : conversation.template_kwargs) set(name.c_str(), value);
  set("messages", std::move(messages));
  set("tools", conversation.tools);
  set("documents", None{});
  set("add_generation_prompt", add_generation_prompt);
  return template_of(conversation).render(variables);
}

// Returns the first special token in bytes [begin, end), or an empty range at `begin`.
ByteRange ChatRenderer::special_token_after(const std::string& text, size_t begin,
                                            size_t end) const {
  for (size_t at = begin; at < end; ++at) {
    if (!starts_special_[static_cast<unsigned char>(text[at])]) continue;
    for (const std::string& token : options_.special_tokens) {
      if (at + token.size() <= end && text.compare(at, token.size(), token) == 0) {
        return {at, at + token.size()};
      }
    }
  }
  return {begin, begin};
}

// Returns the end of the last special token or line in the first `length` bytes of the generation
// prompt, or `length` if that is all of it: "<" of "<think>" and "<tool_call>" is no common part.
size_t ChatRenderer::prompt_boundary(size_t length) const {
  if (length == generation_prompt_.size()) return length;
  size_t boundary = generation_prompt_.substr(0, length).rfind('\n') + 1;
  for (size_t at = 0; at < length;) {
    const ByteRange token = special_token_after(generation_prompt_, at, length);
    if (token.begin == token.end) break;
    boundary = std::max(boundary, token.end);
    at = token.end;
  }
  return boundary;
}

// Finds for each message the longest part of the text that has its content and no other message's.
std::vector<ChatRenderer::MessageSpan> ChatRenderer::spans_of(const Conversation& conversation,
                                                              const TracedText& text) const {
  std::vector<MessageSpan> spans(conversation.messages.size());
  MessageSpan part;
  int32_t message = Source::kTemplate;
  const auto end_part = [&](size_t next) {
    if (message < 0) return;
    part.next = next;
    if (part.content.end == 0) part.content = {part.role_end, part.role_end};  // no content
    MessageSpan& best = spans[static_cast<size_t>(message)];
    if (!best.is_found || part.bytes > best.bytes) best = part;
  };
  size_t last = 0;  // the end of the last text of a message
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.message >= 0) {
      if (piece.source.message != message) {
        end_part(piece.begin);
        message = piece.source.message;
        part = MessageSpan();
        part.header = last;
        part.is_found = true;
      }
      if (piece.source.field == kRoleField) {
        part.role_end = piece.end;
      } else {
        if (part.content.end == 0) part.content.begin = piece.begin;
        part.content.end = piece.end;
        part.bytes += piece.end - piece.begin;
      }
      last = piece.end;
    }
  }
  end_part(text.size());
  return spans;
}

// Returns the turn of a message of the assistant: from after the generation prompt that the
// template wrote before its content to the end of turn after it.
ByteRange ChatRenderer::turn_at(const std::string& text, const MessageSpan& span) const {
  if (!span.is_found) return {};
  const std::string_view bytes = text;
  const ByteRange& content = span.content;
  size_t begin = content.begin;
  size_t longest = 0;
  for (size_t at = span.header; at <= content.begin && !generation_prompt_.empty(); ++at) {
    const size_t common = prompt_boundary(common_prefix(bytes.substr(at), generation_prompt_));
    if (common < longest || common == 0) continue;
    // Of two the later, which is this message's: the earlier is that of an empty turn before it.
    if (common == longest && at + common > content.begin) continue;
    longest = common;
    begin = at + common;
  }
  // A few equal characters are no prompt: it has to agree up to the end of its first special token.
  const ByteRange marker = special_token_after(generation_prompt_, 0, generation_prompt_.size());
  const size_t least = marker.end > 0 ? marker.end : (generation_prompt_.size() + 1) / 2;
  if (longest < least) begin = content.begin;

  const size_t after = std::max(content.end, begin);
  const std::string_view rest = bytes.substr(0, span.next);
  const size_t end = end_of_turn_.empty() ? std::string::npos : rest.find(end_of_turn_, after);
  if (end != std::string::npos) return {begin, end + end_of_turn_.size()};
  return {begin, std::max(content.end, special_token_after(text, after, span.next).end)};
}

// The text of messages that are not learned, with the whole turn of the assistant and the white
// space after it.
std::vector<ByteRange> ChatRenderer::unlearned_text(const Conversation& conversation,
                                                    const TracedText& text) const {
  const auto is_left_out = [](const Message& message) { return !message.learns; };
  if (std::ranges::none_of(conversation.messages, is_left_out)) return {};
  std::vector<ByteRange> ranges;
  for (const TracedText::Piece& piece : text.pieces()) {
    const int32_t index = piece.source.message;
    if (index >= 0 && !conversation.messages[static_cast<size_t>(index)].learns) {
      ranges.push_back(piece);
    }
  }
  const std::vector<MessageSpan> spans = spans_of(conversation, text);
  for (size_t i = 0; i < spans.size(); ++i) {
    const Message& message = conversation.messages[i];
    if (message.learns || !is_answer(message)) continue;
    ByteRange turn = turn_at(text.str(), spans[i]);
    turn.end += stripped(std::string_view(text.str()).substr(turn.end), Ends::kLeft).begin;
    ranges.push_back(turn);
  }
  return joined(std::move(ranges));
}

std::vector<ByteRange> ChatRenderer::assistant_turns(const Conversation& conversation,
                                                     const TracedText& text) const {
  std::vector<ByteRange> turns;
  const std::vector<MessageSpan> spans = spans_of(conversation, text);
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    if (!is_answer(message)) continue;
    ByteRange turn = turn_at(text.str(), spans[i]);
    if (turn.begin >= turn.end) continue;
    if (options_.turns == TurnChoice::kLast) turns.clear();
    if (!message.learns) continue;
    if (!turns.empty()) turn.begin = std::max(turn.begin, turns.back().end);
    if (turn.begin < turn.end) turns.push_back(turn);
  }
  return turns;
}

// The ranges inside {% generation %}, without those of messages that are not learned.
std::vector<ByteRange> ChatRenderer::marked_turns(const Conversation& conversation,
                                                  const TracedText& text) const {
  struct Turn {
    ByteRange range;
    bool learns = true;
  };
  std::vector<Turn> turns;
  bool continues = false;
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.generated) {
      if (!continues) turns.push_back({piece});
      Turn& turn = turns.back();
      turn.range.end = piece.end;
      const int32_t index = piece.source.message;
      turn.learns &= index < 0 || conversation.messages[static_cast<size_t>(index)].learns;
    }
    continues = piece.source.generated;
  }
  if (options_.turns == TurnChoice::kLast && turns.size() > 1)
    turns.erase(turns.begin(), turns.end() - 1);
  std::vector<ByteRange> ranges;
  for (const Turn& turn : turns) {
    if (turn.learns) ranges.push_back(turn.range);
  }
  return ranges;
}

// The texts between response_template and the next instruction_template; without the latter, what
// comes after the last response_template.
std::vector<ByteRange> ChatRenderer::between_markers(const std::string& text) const {
  std::vector<ByteRange> ranges;
  const std::string& response = options_.response_template;
  const std::string& instruction = options_.instruction_template;
  const bool is_last = instruction.empty() || options_.turns == TurnChoice::kLast;
  for (size_t at = text.find(response); at != std::string::npos;) {
    const size_t begin = at + response.size();
    const size_t stop = instruction.empty() ? std::string::npos : text.find(instruction, begin);
    const size_t end = std::min(stop, text.size());
    if (is_last) ranges.clear();
    if (begin < end) ranges.push_back({begin, end});
    at = text.find(response, instruction.empty() ? begin : end);
  }
  return ranges;
}

// Removes the ranges whose text comes from messages that are not learned alone: the template's
// white space around such an answer is not learned either.
std::vector<ByteRange> ChatRenderer::without_unlearned_answers(std::vector<ByteRange> ranges,
                                                               const Conversation& conversation,
                                                               const TracedText& text) {
  std::erase_if(ranges, [&](const ByteRange& range) {
    bool has_unlearned = false;
    bool has_learned = false;
    for (const TracedText::Piece& piece : text.pieces()) {
      if (piece.source.message < 0 || piece.end <= range.begin || piece.begin >= range.end)
        continue;
      const bool learns = conversation.messages[static_cast<size_t>(piece.source.message)].learns;
      (learns ? has_learned : has_unlearned) = true;
    }
    return has_unlearned && !has_learned;
  });
  return ranges;
}

// Whether an answer is followed by another without an instruction between them, although one is
// looked for.
bool ChatRenderer::lacks_instruction(const std::string& text) const {
  const std::string& response = options_.response_template;
  if (response.empty() || options_.instruction_template.empty()) return false;
  const size_t first = text.find(response);
  if (first == std::string::npos) return false;
  const size_t second = text.find(response, first + response.size());
  return second != std::string::npos &&
         text.find(options_.instruction_template) == std::string::npos;
}

std::vector<ByteRange> ChatRenderer::learned_of(const Conversation& conversation,
                                                const TracedText& text) const {
  if (!options_.response_template.empty()) {
    return difference(without_unlearned_answers(between_markers(text.str()), conversation, text),
                      unlearned_text(conversation, text));
  }
  if (options_.assistant_only || options_.turns == TurnChoice::kLast) {
    return template_of(conversation).has_generation() ? marked_turns(conversation, text)
                                                      : assistant_turns(conversation, text);
  }
  return difference({{0, text.size()}}, unlearned_text(conversation, text));
}

void ChatRenderer::note_reasoning(const Conversation& conversation, const TracedText& text,
                                  RenderedChat& rendered) const {
  const auto needs_check = [](const Message& message) {
    return (message.reasoning && !message.reasoning->empty()) || message.has_think_tag;
  };
  if (std::ranges::none_of(conversation.messages, needs_check)) return;
  std::vector<bool> has_reasoning(conversation.messages.size());
  std::vector<std::string> contents(conversation.messages.size());
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.message >= 0) {
      const auto index = static_cast<size_t>(piece.source.message);
      has_reasoning[index] = has_reasoning[index] || piece.source.field == kReasoningField;
      if (piece.source.field == kContentField)
        contents[index].append(text.str(), piece.begin, piece.end - piece.begin);
    }
  }
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    const bool lost = message.reasoning && !message.reasoning->empty() && !has_reasoning[i];
    // A template may spell the tag itself and take the reasoning from the content.
    const Value* content = find(*message.fields.dict(), std::string_view("content"));
    const bool cut = message.has_think_tag && content->text() != nullptr &&
                     contents[i].size() * 2 < content->text()->size() &&
                     contents[i].find("</think>") == std::string::npos;
    rendered.drops_reasoning = rendered.drops_reasoning || lost || cut;
  }
}

void ChatRenderer::note_tools(const Conversation& conversation, const TracedText& text,
                              RenderedChat& rendered) const {
  rendered.drops_tools = !conversation.tools.is_none() && !template_of(conversation).uses("tools");
  if (std::ranges::none_of(conversation.messages, &Message::has_tool_calls)) return;
  std::vector<bool> has_calls(conversation.messages.size());
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.message >= 0 && piece.source.field == kToolCallsField) {
      has_calls[static_cast<size_t>(piece.source.message)] = true;
    }
  }
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    rendered.drops_tools |= conversation.messages[i].has_tool_calls && !has_calls[i];
  }
}

void ChatRenderer::note_special_tokens(const TracedText& text, RenderedChat& rendered) const {
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.message >= 0 && piece.source.field != kRoleField) {
      rendered.from_messages.push_back(piece);
      const ByteRange token = special_token_after(text.str(), piece.begin, piece.end);
      if (token.begin < token.end) rendered.has_special_tokens = true;
    }
  }
}

RenderedChat ChatRenderer::render(const Conversation& conversation) const {
  RenderedChat rendered;
  if (conversation.messages.empty()) {
    rendered.is_plain = true;
    rendered.prompt = conversation.prompt;
    rendered.text = conversation.prompt.value_or("") + conversation.text;
    if (rendered.text.empty()) return rendered;
    if (!options_.eos_token.empty() && !rendered.text.ends_with(options_.eos_token)) {
      rendered.text += options_.eos_token;
    }
    if (!options_.response_template.empty()) {
      rendered.learned = between_markers(rendered.text);
      rendered.prompt.reset();
    } else {
      rendered.learned = {{0, rendered.text.size()}};
    }
    return rendered;
  }
  if (template_ == nullptr) {
    throw Error(ErrorKind::kConfig,
                "the model has no chat template; set chat_template_path, for example to chatml");
  }
  const TracedText text = render_messages(conversation, conversation.messages.size(), false);
  rendered.text = text.str();
  rendered.learned = learned_of(conversation, text);
  if (conversation.completion) {
    rendered.prompt = render_messages(conversation, *conversation.completion, true).str();
  }
  note_reasoning(conversation, text, rendered);
  note_tools(conversation, text, rendered);
  rendered.lacks_instruction = lacks_instruction(text.str());
  note_special_tokens(text, rendered);
  return rendered;
}

std::string ChatRenderer::prompt_of(const Conversation& conversation) const {
  if (conversation.messages.empty()) return conversation.prompt.value_or(conversation.text);
  if (template_ == nullptr) {
    fail("the model has no chat template; set --chat_template_path, for example to chatml");
  }
  return render_messages(conversation, conversation.messages.size(), true).str();
}

}  // namespace finetune::chat
