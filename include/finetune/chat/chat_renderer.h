// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/chat/chat_template.h"
#include "finetune/chat/conversation.h"

namespace finetune::chat {

enum class TurnChoice { kAll, kLast };

struct RenderOptions {
  // Variables of every rendering: bos_token and the like, and chat_template_kwargs.
  std::vector<std::pair<std::string, Value>> variables;
  std::tm date = {};                        // what strftime_now() formats
  std::vector<std::string> special_tokens;  // of the tokenizer, as they are spelt in text
  std::string eos_token;                    // appended to plain text; empty: nothing is
  bool assistant_only = false;              // learn the assistant's turns alone
  TurnChoice turns = TurnChoice::kAll;      // kLast: of those, the last
  // Marker strings: the text between response_template and the next instruction_template is
  // learned. They replace the template's marks; empty: unset.
  std::string instruction_template, response_template;
};

// A conversation as text, and what of it is learned.
struct RenderedChat {
  std::string text;
  std::vector<ByteRange> learned;  // ascending, disjoint
  // Of a prompt with its completion: the prompt as the model sees it when it answers. What comes
  // after their common tokens is the completion.
  std::optional<std::string> prompt;
  bool is_plain = false;            // plain text, to which the post-processor's tokens are added
  bool drops_reasoning = false;     // the template leaves out reasoning
  bool drops_tools = false;         // the template leaves out tools or tool calls
  bool lacks_instruction = false;   // of several answers: instruction_template is not there
  bool has_special_tokens = false;  // a message spells a special token
  std::vector<ByteRange> from_messages;  // what the messages wrote, except for their roles
};

// Renders conversations and finds what a model learns of them, with one rendering each. Immutable
// after construction, so safe to share between threads.
//
// Where {% generation %} marks the assistant's text, the marks decide. Without, a turn is learned
// from after the longest common prefix of the generation prompt and of what the template wrote
// before the message (the prompt itself is often no prefix: it may end in "<think>\n"), to the end
// of turn: the special token after the content, without the line break after it. The content is
// found by its source, also where the template rewrites earlier turns.
class ChatRenderer {
 public:
  // Without a template, only plain text can be rendered.
  ChatRenderer(std::shared_ptr<const ChatTemplate> chat_template, RenderOptions options);

  // Throws Error(kData) without the row's position.
  [[nodiscard]] RenderedChat render(const Conversation& conversation) const;
  // Returns the text that a model continues: the messages and the generation prompt.
  [[nodiscard]] std::string prompt_of(const Conversation& conversation) const;

  // What the template writes before an answer: "<|im_start|>assistant\n"; empty if nothing.
  [[nodiscard]] const std::string& generation_prompt() const { return generation_prompt_; }
  // The special tokens that end an assistant's turn, "<|im_end|>", and the last of them, at which a
  // model stops; empty if there is none.
  [[nodiscard]] const std::string& end_of_turn() const { return end_of_turn_; }
  [[nodiscard]] const std::string& stop_token() const { return stop_token_; }
  [[nodiscard]] const std::string& response_template() const { return options_.response_template; }
  // False: the template refuses a plain question with its answer, so that neither is known.
  [[nodiscard]] bool is_probed() const { return is_probed_; }

 private:
  [[nodiscard]] const ChatTemplate& template_of(const Conversation& conversation) const;
  [[nodiscard]] TracedText render_messages(const Conversation& conversation, size_t count,
                                           bool add_generation_prompt) const;
  void probe();
  [[nodiscard]] ByteRange special_token_after(const std::string& text, size_t begin,
                                              size_t end) const;
  [[nodiscard]] size_t prompt_boundary(size_t length) const;
  [[nodiscard]] std::vector<ByteRange> assistant_turns(const Conversation& conversation,
                                                       const TracedText& text) const;
  // Where a message is in the rendered text.
  struct MessageSpan {
    size_t header = 0;  // the end of the message's text before it
    ByteRange content;  // of its fields, except the role; empty where it has none
    size_t role_end = 0;
    size_t next = 0;   // the beginning of the next message's text
    size_t bytes = 0;  // of its text in `content`
    bool is_found = false;
  };
  [[nodiscard]] std::vector<MessageSpan> spans_of(const Conversation& conversation,
                                                  const TracedText& text) const;
  [[nodiscard]] ByteRange turn_at(const std::string& text, const MessageSpan& span) const;
  [[nodiscard]] std::vector<ByteRange> unlearned_text(const Conversation& conversation,
                                                      const TracedText& text) const;
  [[nodiscard]] std::vector<ByteRange> marked_turns(const Conversation& conversation,
                                                    const TracedText& text) const;
  [[nodiscard]] std::vector<ByteRange> between_markers(const std::string& text) const;
  [[nodiscard]] static std::vector<ByteRange> without_unlearned_answers(
      std::vector<ByteRange> ranges, const Conversation& conversation, const TracedText& text);
  [[nodiscard]] bool lacks_instruction(const std::string& text) const;
  [[nodiscard]] std::vector<ByteRange> learned_of(const Conversation& conversation,
                                                  const TracedText& text) const;
  void note_reasoning(const Conversation& conversation, const TracedText& text,
                      RenderedChat& rendered) const;
  void note_tools(const Conversation& conversation, const TracedText& text,
                  RenderedChat& rendered) const;
  void note_special_tokens(const TracedText& text, RenderedChat& rendered) const;

  std::shared_ptr<const ChatTemplate> template_;
  RenderOptions options_;
  std::array<bool, 256> starts_special_ = {};  // whether a special token begins with this byte
  std::string generation_prompt_;
  std::string end_of_turn_;
  std::string stop_token_;
  bool is_probed_ = true;
};

}  // namespace finetune::chat
