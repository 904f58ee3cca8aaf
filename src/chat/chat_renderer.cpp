// SPDX-License-Identifier: MIT
#include "finetune/chat/chat_renderer.h"

#include <algorithm>

#include "chat/arguments.h"
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

// Removes `without` from `ranges`; both ascending and disjoint.
std::vector<ByteRange> difference(const std::vector<ByteRange>& ranges,
                                  const std::vector<ByteRange>& without) {
  std::vector<ByteRange> result;
  for (ByteRange range : ranges) {
    for (const ByteRange& hole : without) {
      if (hole.end <= range.begin || hole.begin >= range.end) continue;
      if (hole.begin > range.begin) result.push_back({range.begin, hole.begin});
      range.begin = std::max(range.begin, hole.end);
    }
    if (range.begin < range.end) result.push_back(range);
  }
  return result;
}

// The bytes whose source is in a message that is not learned.
std::vector<ByteRange> unlearned_text(const Conversation& conversation, const TracedText& text) {
  std::vector<ByteRange> ranges;
  size_t begin = 0;
  for (const TracedText::Piece& piece : text.pieces()) {
    const int32_t index = piece.source.message;
    if (index >= 0 && !conversation.messages[static_cast<size_t>(index)].learns) {
      ranges.push_back({begin, piece.end});
    }
    begin = piece.end;
  }
  return ranges;
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
    const ByteRange token = special_token_after(answered, answer, answered.size());
    end_of_turn_ = answered.substr(token.begin, token.end - token.begin);
  } catch (const Error&) {
  }
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
  return template_->render(variables);
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

// Finds the turn of an assistant's message: its content, the end of turn after it, and what the
// template wrote before it after the generation prompt.
ByteRange ChatRenderer::turn_of(const TracedText& text, int32_t message) const {
  const std::vector<TracedText::Piece> pieces = text.pieces();
  // The longest part of the text that has this message's content and no other message's.
  ByteRange content{};
  size_t header = 0;  // the end of the other message's text before it
  size_t next = text.size();
  size_t most = 0;
  bool found = false;
  for (size_t i = 0, begin = 0, other = 0; i < pieces.size();) {
    ByteRange range{text.size(), 0};
    ByteRange role{text.size(), 0};
    size_t bytes = 0;
    for (; i < pieces.size(); begin = pieces[i].end, ++i) {
      const Source& source = pieces[i].source;
      if (source.message >= 0 && source.message != message) break;
      if (source.message != message) continue;
      ByteRange& mine = source.field == kRoleField ? role : range;
      mine = {std::min(mine.begin, begin), pieces[i].end};
      if (source.field != kRoleField) bytes += pieces[i].end - begin;
    }
    const bool is_empty = range.end == 0;  // an empty message: its role alone
    if (is_empty ? role.end > 0 && !found : bytes > most || !found) {
      content = is_empty ? ByteRange{role.end, role.end} : range;
      most = bytes;
      header = other;
      next = i < pieces.size() ? begin : text.size();
      found = true;
    }
    for (;
         i < pieces.size() && pieces[i].source.message >= 0 && pieces[i].source.message != message;
         ++i) {
      begin = pieces[i].end;
    }
    other = begin;
  }
  if (!found) return {};

  const std::string_view bytes = text.str();
  size_t begin = content.begin;
  size_t longest = 0;
  for (size_t at = header; at <= content.begin && !generation_prompt_.empty(); ++at) {
    const size_t common = prompt_boundary(common_prefix(bytes.substr(at), generation_prompt_));
    if (common <= longest) continue;
    longest = common;
    begin = at + common;
  }
  // A few equal characters are no prompt: it has to agree up to the end of its first special token.
  const ByteRange marker = special_token_after(generation_prompt_, 0, generation_prompt_.size());
  const size_t least = marker.end > 0 ? marker.end : (generation_prompt_.size() + 1) / 2;
  if (longest < least) begin = content.begin;

  const size_t after = std::max(content.end, begin);
  const size_t end =
      end_of_turn_.empty() ? std::string::npos : text.str().find(end_of_turn_, after);
  if (end != std::string::npos && end + end_of_turn_.size() <= next) {
    return {begin, end + end_of_turn_.size()};
  }
  return {begin, std::max(content.end, special_token_after(text.str(), after, next).end)};
}

std::vector<ByteRange> ChatRenderer::assistant_turns(const Conversation& conversation,
                                                     const TracedText& text) const {
  std::vector<ByteRange> turns;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    if (message.role != "assistant" && message.role != "model") continue;
    ByteRange turn = turn_of(text, static_cast<int32_t>(i));
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
  size_t begin = 0;
  bool continues = false;
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.generated) {
      if (!continues) turns.push_back({{begin, begin}});
      Turn& turn = turns.back();
      turn.range.end = piece.end;
      const int32_t index = piece.source.message;
      turn.learns &= index < 0 || conversation.messages[static_cast<size_t>(index)].learns;
    }
    continues = piece.source.generated;
    begin = piece.end;
  }
  if (options_.turns == TurnChoice::kLast && turns.size() > 1)
    turns.erase(turns.begin(), turns.end() - 1);
  std::vector<ByteRange> ranges;
  for (const Turn& turn : turns) {
    if (turn.learns) ranges.push_back(turn.range);
  }
  return ranges;
}

std::vector<ByteRange> ChatRenderer::between_markers(const std::string& text) const {
  std::vector<ByteRange> ranges;
  const std::string& response = options_.response_template;
  const std::string& instruction = options_.instruction_template;
  for (size_t at = text.find(response); at != std::string::npos;) {
    const size_t begin = at + response.size();
    const size_t stop = instruction.empty() ? std::string::npos : text.find(instruction, begin);
    const size_t end = std::min(stop, text.size());
    if (begin < end) ranges.push_back({begin, end});
    at = instruction.empty() ? std::string::npos : text.find(response, end);
  }
  if (options_.turns == TurnChoice::kLast && ranges.size() > 1)
    ranges.erase(ranges.begin(), ranges.end() - 1);
  return ranges;
}

std::vector<ByteRange> ChatRenderer::learned_of(const Conversation& conversation,
                                                const TracedText& text) const {
  if (!options_.response_template.empty()) {
    return difference(between_markers(text.str()), unlearned_text(conversation, text));
  }
  if (options_.assistant_only || options_.turns == TurnChoice::kLast) {
    return template_->has_generation() ? marked_turns(conversation, text)
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
  size_t begin = 0;
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.message >= 0) {
      const auto index = static_cast<size_t>(piece.source.message);
      has_reasoning[index] = has_reasoning[index] || piece.source.field == kReasoningField;
      if (piece.source.field == kContentField)
        contents[index].append(text.str(), begin, piece.end - begin);
    }
    begin = piece.end;
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

void ChatRenderer::note_special_tokens(const TracedText& text, RenderedChat& rendered) const {
  size_t begin = 0;
  for (const TracedText::Piece& piece : text.pieces()) {
    if (piece.source.message >= 0 && piece.source.field != kRoleField) {
      const ByteRange token = special_token_after(text.str(), begin, piece.end);
      if (token.begin < token.end) rendered.has_special_tokens = true;
    }
    begin = piece.end;
  }
}

RenderedChat ChatRenderer::render(const Conversation& conversation) const {
  RenderedChat rendered;
  if (conversation.messages.empty()) {
    rendered.is_plain = true;
    rendered.prompt = conversation.prompt;
    rendered.text = conversation.prompt.value_or("") + conversation.text;
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
    fail("the model has no chat template; set chat_template_path, for example to chatml");
  }
  const TracedText text = render_messages(conversation, conversation.messages.size(), false);
  rendered.text = text.str();
  rendered.learned = learned_of(conversation, text);
  if (conversation.completion) {
    rendered.prompt = render_messages(conversation, *conversation.completion, true).str();
  }
  note_reasoning(conversation, text, rendered);
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
