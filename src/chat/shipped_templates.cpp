// SPDX-License-Identifier: MIT
#include "chat/shipped_templates.h"

namespace finetune::chat {
namespace {

// The forms of well-known models, for starting models without a template. They have no marks of
// {% generation %}, so that every program that runs chat models reads them.

#define FT_TEXT_MACRO                                                              \
  "{%- macro text(content) -%}\n"                                                  \
  "{%- if content is string -%}{{ content }}\n"                                    \
  "{%- elif content -%}{%- for part in content -%}{{ part.text }}{%- endfor -%}\n" \
  "{%- endif -%}\n"                                                                \
  "{%- endmacro -%}\n"

constexpr ShippedTemplate kTemplates[] = {
    {"chatml", FT_TEXT_MACRO R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + text(message.content) + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
)"},
    {"llama3", FT_TEXT_MACRO R"({{- bos_token }}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + text(message.content) | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%}
)"},
    {"mistral", FT_TEXT_MACRO R"({%- set ns = namespace(system='') -%}
{{- bos_token }}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = text(message.content) + '\n\n' -%}
{%- elif message.role == 'user' -%}
{{ '[INST] ' + ns.system + text(message.content) + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- elif message.role == 'assistant' -%}
{{ ' ' + text(message.content) | trim + eos_token }}
{%- else -%}
{{ raise_exception('the roles are system, user and assistant, not ' + message.role) }}
{%- endif -%}
{%- endfor -%}
)"},
    {"gemma", FT_TEXT_MACRO R"({%- set ns = namespace(system='') -%}
{{- bos_token }}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = text(message.content) + '\n\n' -%}
{%- else -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\n' + ns.system + text(message.content) | trim + '<end_of_turn>\n' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<start_of_turn>model\n' }}
{%- endif -%}
)"},
    {"phi3", FT_TEXT_MACRO R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + text(message.content) + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)"},
    {"alpaca", FT_TEXT_MACRO R"({%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ text(message.content) + '\n\n' }}
{%- elif message.role == 'user' -%}
{{ '### Instruction:\n' + text(message.content) + '\n\n' }}
{%- else -%}
{{ '### Response:\n' + text(message.content) + eos_token + '\n\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '### Response:\n' }}
{%- endif -%}
)"},
};
#undef FT_TEXT_MACRO

}  // namespace

std::span<const ShippedTemplate> shipped_templates() { return kTemplates; }

}  // namespace finetune::chat
