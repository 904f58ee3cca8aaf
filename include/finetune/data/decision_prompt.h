// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "finetune/chat/chat_template.h"
#include "finetune/data/decision_questions.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// One or several questions as the model reads them.
struct DecisionPrompt {
  std::vector<int32_t> ids;
  // Of each question, where its options are scored, as numbers of tokens before: the head reads
  // positions mark - 1. One for all options, or one of each.
  std::vector<std::vector<int64_t>> marks;
  std::string unreadable = {};  // why the model cannot tell the options apart; empty: it can
};

// Turns requests into what a model reads. Immutable, so safe to share between threads.
class DecisionPrompter {
 public:
  virtual ~DecisionPrompter() = default;
  // Whether one prompt has all questions of a request.
  [[nodiscard]] virtual bool asks_together() const = 0;
  // Throws Error(kData) for a question whose options the model has no scores of.
  virtual void check(const DecisionQuestion& question) const = 0;
  // Requires: one question, unless asks_together(). Throws Error(kData), without the row's
  // position, for a request that has no such form.
  [[nodiscard]] virtual DecisionPrompt prompt(
      const nlohmann::ordered_json& state, std::span<const DecisionQuestion> questions) const = 0;
};

struct TemplatePrompterOptions {
  // decision_template.jinja, which reads `state` and `question` (a prompt for each question) or
  // `questions` (one for all); null: transformers' generic prompt as the user's message in
  // `chat_template`.
  std::shared_ptr<const chat::ChatTemplate> decision_template = {};
  std::shared_ptr<const chat::ChatTemplate> chat_template = {};
  std::vector<std::pair<std::string, chat::Value>> variables = {};  // bos_token, ...
  std::tm date = {};
  bool sanitize_control_tokens = true;
  // How many options a question may have, by type, where a head scores them; empty: labels do.
  std::vector<int64_t> most_options = {};
};

// Renders and tokenises requests as transformers' decision.prepare_inputs() does. A question's mark
// is the template's `<|mark|>`, without marks the end.
class TemplatePrompter final : public DecisionPrompter {
 public:
  // `tokenizer` must outlive the prompter. Throws Error(kConfig) without any template.
  TemplatePrompter(const Tokenizer& tokenizer, TemplatePrompterOptions options);

  [[nodiscard]] bool asks_together() const override { return asks_together_; }
  // Also throws for labels that are not different tokens.
  void check(const DecisionQuestion& question) const override;
  // Also throws if the template marks another number of positions.
  [[nodiscard]] DecisionPrompt prompt(const nlohmann::ordered_json& state,
                                      std::span<const DecisionQuestion> questions) const override;

 private:
  [[nodiscard]] chat::TracedText render(const nlohmann::ordered_json& state,
                                        std::span<const DecisionQuestion> questions) const;
  [[nodiscard]] DecisionPrompt encode(const chat::TracedText& text) const;
  void append(const std::string& piece, bool is_text, DecisionPrompt& prompt, bool is_first) const;
  [[nodiscard]] const std::string* control_token_at(const std::string& text, size_t at,
                                                    size_t end) const;

  const Tokenizer& tokenizer_;
  TemplatePrompterOptions options_;
  bool asks_together_ = false;
  std::vector<std::string> control_tokens_;    // the longest first
  std::array<bool, 256> starts_control_ = {};  // whether one begins with this byte
  std::vector<int32_t> newline_;
};

// The id of a label, which is one token. Throws Error(kData).
[[nodiscard]] int32_t label_id(const Tokenizer& tokenizer, const std::string& label);

struct LayaPrompterOptions {
  int64_t max_len = 512;       // of all, to which the state is cut
  int64_t head_max_len = 192;  // of the question, to which instructions and options are cut
};

// [CLS] question [SEP] [MASK] option [MASK] option ... [SEP] state [SEP], as laya's
// build_sequence() has it, with a mark after each [MASK]. A state that is a list keeps its end.
// What spells a special token is text.
class LayaPrompter final : public DecisionPrompter {
 public:
  // `tokenizer` must outlive the prompter. Throws Error(kConfig) if it lacks a token of these.
  LayaPrompter(const Tokenizer& tokenizer, LayaPrompterOptions options);

  [[nodiscard]] bool asks_together() const override { return false; }
  void check(const DecisionQuestion& /*question*/) const override {}
  [[nodiscard]] DecisionPrompt prompt(const nlohmann::ordered_json& state,
                                      std::span<const DecisionQuestion> questions) const override;

 private:
  [[nodiscard]] std::vector<int32_t> encode(std::string text) const;

  const Tokenizer& tokenizer_;
  LayaPrompterOptions options_;
  int32_t cls_, sep_, mask_;
  std::string mask_text_;
};

}  // namespace finetune
