// SPDX-License-Identifier: MIT
#include "finetune/config/chat_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void ChatArgs::describe(FieldList& field) {
  field.section("Chat data");
  field("assistant_only_loss", &ChatArgs::assistant_only_loss,
        "sft: learn only what the assistant says in 'messages' and 'conversations'; false: whole "
        "conversations.",
        {.resume = ResumePolicy::kFixed});
  field("completion_only_loss", &ChatArgs::completion_only_loss,
        "sft: of rows with a prompt and a completion (or instruction and output), learn the "
        "completion alone; unset: true.",
        {.resume = ResumePolicy::kFixed});
  field("train_turns", &ChatArgs::train_turns,
        "sft: the assistant's turns that are learned: all, or last, which implies "
        "assistant_only_loss.",
        {.choices = {"all", "last"}, .resume = ResumePolicy::kFixed});
  field("chat_template_path", &ChatArgs::chat_template_path,
        "A Jinja file, the folder of a tokenizer, or a built-in template (chatml, llama3, mistral, "
        "gemma, phi3, alpaca) for chat data and decisions; unset: the starting model's.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPathOrName});
  field("chat_template_kwargs", &ChatArgs::chat_template_kwargs,
        "sft: variables for the chat template ({enable_thinking: false}).",
        {.resume = ResumePolicy::kFixed});
  field("instruction_template", &ChatArgs::instruction_template,
        "sft: text that begins a question, for rows whose template is unknown; learning stops at "
        "it. Needs response_template; unset: only the last answer is learned.",
        {.resume = ResumePolicy::kFixed});
  field("response_template", &ChatArgs::response_template,
        "sft: text after which an answer begins, instead of what the chat template says; only what "
        "comes after it is learned.",
        {.resume = ResumePolicy::kFixed});
  field("special_tokens_in_text", &ChatArgs::special_tokens_in_text,
        "sft: a special token that a message spells becomes that token (parse), or is encoded as "
        "the characters that spell it (text).",
        {.choices = {"parse", "text"}, .resume = ResumePolicy::kFixed});
  field("packing_strategy", &ChatArgs::packing_strategy,
        "sft: with packing, bfd puts whole samples into rows, which do not attend to each other; "
        "wrapped joins all samples and splits them into rows, as clm does with text.",
        {.choices = {"bfd", "wrapped"}, .resume = ResumePolicy::kFixed});
  field("skip_bad_rows", &ChatArgs::skip_bad_rows,
        "sft: leave out rows that are no conversation or that the template refuses, and count "
        "them; false: such a row is an error.",
        {.resume = ResumePolicy::kFixed});
  field("generate_samples", &ChatArgs::generate_samples,
        "sft: at each evaluation, answer this many questions, the first of the validation data, "
        "and write the answers to generated_samples.jsonl.",
        {.range = {.min = 0, .max = 1000}});
}

}  // namespace finetune
