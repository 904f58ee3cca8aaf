// SPDX-License-Identifier: MIT
#include "finetune/task/chat_tokens.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {

chat::RenderOptions chat_render_options(const Tokenizer& tokenizer, const std::string& kwargs,
                                        const std::string& key) {
  chat::RenderOptions options;
  const SpecialTokens& special = tokenizer.special_tokens();
  const auto add = [&](const char* name, const std::optional<SpecialTokens::Token>& token) {
    if (token) options.variables.emplace_back(name, chat::Value(token->text));
  };
  add("bos_token", special.bos);
  add("eos_token", special.eos);
  add("unk_token", special.unk);
  add("sep_token", special.sep);
  add("pad_token", special.pad);
  add("cls_token", special.cls);
  add("mask_token", special.mask);
  if (special.eos) options.eos_token = special.eos->text;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_special(id)) options.special_tokens.push_back(tokenizer.id_to_token(id));
  }
  if (kwargs.empty()) return options;
  const nlohmann::ordered_json json = parse_json(kwargs, key, ErrorKind::kConfig);
  if (!json.is_object()) throw Error(ErrorKind::kConfig, key + " must be an object of JSON");
  for (const auto& [name, value] : json.items()) {
    for (const char* reserved : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (name != reserved) continue;
      throw Error(ErrorKind::kConfig, key + ": '" + name + "' is set by each row; leave it out");
    }
    options.variables.emplace_back(name, chat::Value::from_json(value));
  }
  return options;
}

}  // namespace finetune
