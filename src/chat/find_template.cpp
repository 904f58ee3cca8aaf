// SPDX-License-Identifier: MIT
#include "finetune/chat/find_template.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"

namespace finetune::chat {
namespace {

using Json = nlohmann::ordered_json;

struct ShippedTemplate {
  std::string_view name;
  std::string_view text;
};

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
{%- elif message.role == 'assistant' -%}
{{ '### Response:\n' + text(message.content) + eos_token + '\n\n' }}
{%- else -%}
{{ raise_exception('the roles are system, user and assistant, not ' + message.role) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '### Response:\n' }}
{%- endif -%}
)"},
};
#undef FT_TEXT_MACRO

constexpr uint64_t kMaxBytes = uint64_t{1} << 20;

// transformers renders a conversation with tools by the template "tool_use", where there is one.
std::shared_ptr<const ChatTemplate> from_file(const std::string& path,
                                              const std::string& for_tools = "") {
  FileSystem& local = FileSystem::local();
  const bool has_other = !for_tools.empty() && local.exists(for_tools);
  return std::make_shared<const ChatTemplate>(local.read_all(path, kMaxBytes), path,
                                              has_other ? from_file(for_tools) : nullptr);
}

// The key chat_template of tokenizer_config.json: text, or a list of {name, template}.
std::shared_ptr<const ChatTemplate> from_tokenizer_config(const std::string& path) {
  const Json config = read_json_file(path);
  const auto value = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || value == config.end() || value->is_null()) return nullptr;
  const std::string where = path + ": chat_template";
  if (value->is_string())
    return std::make_shared<const ChatTemplate>(value->get<std::string>(), where);
  if (!value->is_array())
    throw Error(ErrorKind::kData, where + " must be text or a list of templates");
  std::vector<std::string> names;
  std::map<std::string, std::string> texts;
  for (const Json& item : *value) {
    if (!item.is_object() || !item.contains("name") || !item.contains("template") ||
        !item["name"].is_string() || !item["template"].is_string()) {
      throw Error(ErrorKind::kData, where + ": a template needs 'name' and 'template'");
    }
    names.push_back(item["name"].get<std::string>());
    texts[names.back()] = item["template"].get<std::string>();
  }
  const auto plain = texts.find("default");
  if (plain == texts.end()) {
    throw Error(ErrorKind::kData, where + ": no template is called 'default', only " + join(names));
  }
  const auto found = texts.find("tool_use");
  auto for_tools = found == texts.end()
                       ? nullptr
                       : std::make_shared<const ChatTemplate>(found->second, where + " tool_use");
  return std::make_shared<const ChatTemplate>(plain->second, where, std::move(for_tools));
}

std::shared_ptr<const ChatTemplate> from_folder(const std::string& folder) {
  FileSystem& local = FileSystem::local();
  const std::string file = join_path(folder, kChatTemplateFile);
  if (local.exists(file)) {
    return from_file(file, join_path(join_path(folder, kMoreChatTemplates), "tool_use.jinja"));
  }
  const std::string config = join_path(folder, "tokenizer_config.json");
  return local.exists(config) ? from_tokenizer_config(config) : nullptr;
}

}  // namespace

std::vector<std::string> shipped_template_names() {
  std::vector<std::string> names;
  for (const ShippedTemplate& shipped : kTemplates) names.emplace_back(shipped.name);
  return names;
}

std::shared_ptr<const ChatTemplate> find_chat_template(const std::string& tokenizer_folder,
                                                       const std::optional<std::string>& path,
                                                       const std::string& key) {
  if (!path) return tokenizer_folder.empty() ? nullptr : from_folder(tokenizer_folder);
  for (const ShippedTemplate& shipped : kTemplates) {
    if (shipped.name == *path) {
      return std::make_shared<const ChatTemplate>(std::string(shipped.text),
                                                  "chat template " + *path);
    }
  }
  FileSystem& local = FileSystem::local();
  if (!local.exists(*path)) {
    throw Error(
        ErrorKind::kConfig,
        format_text(
            "{}: there is no file or folder '{}', and no template of that name is built in ({})",
            key, *path, join(shipped_template_names())));
  }
  const bool is_folder = local.type(*path) == FileType::kDirectory ||
                         local.exists(join_path(*path, kChatTemplateFile)) ||
                         local.exists(join_path(*path, "tokenizer_config.json"));
  if (!is_folder) return from_file(*path);
  auto found = from_folder(*path);
  if (found == nullptr) {
    throw Error(ErrorKind::kConfig,
                format_text("{}: '{}' has no {} and no chat_template in tokenizer_config.json", key,
                            *path, kChatTemplateFile));
  }
  return found;
}

}  // namespace finetune::chat
