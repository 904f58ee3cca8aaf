// SPDX-License-Identifier: MIT
#include "task/setup/chat_setup.h"

#include <algorithm>

#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/text.h"
#include "finetune/task/chat_tokens.h"
#include "task/generate/generation_config.h"
#include "task/setup/causal_setup.h"

namespace finetune {

ChatSetup::ChatSetup(const SetupContext& context, chat::RenderOptions masks, const Json& identity)
    : LabelledSetup(context, 1024), template_(context.chat_template) {
  const KeyLocations& locations = context.options.locations;
  if (!is_causal(context.model)) {
    refuse_key(locations, "task",
               args().task + " trains decoders, and a " + context.model.model_type +
                   " predicts masked words; start from a decoder");
  }
  if (template_ == nullptr && locations.is_set("chat_template_kwargs")) {
    log::warning(locations.where("chat_template_kwargs") +
                 ": no effect without a chat template: chat_template_kwargs");
  }
  chat::RenderOptions options =
      chat_render_options(context.tokenizer, args().chat_template_kwargs.text,
                          locations.where("chat_template_kwargs") + ": chat_template_kwargs");
  options.date = parse_chat_date(context.chat_date);
  options.assistant_only = masks.assistant_only;
  options.turns = masks.turns;
  options.instruction_template = std::move(masks.instruction_template);
  options.response_template = std::move(masks.response_template);
  const bool uses_date = template_ != nullptr && (template_->uses("strftime_now") ||
                                                  template_->for_tools().uses("strftime_now"));
  Json whole = {{"version", 2},
                {"template", template_ != nullptr ? template_->joined_text() : ""},
                {"kwargs", args().chat_template_kwargs.text},
                {"date", uses_date ? context.chat_date : ""}};
  whole.update(identity);
  identity_ = whole.dump();
  renderer_ = std::make_shared<const chat::ChatRenderer>(template_, std::move(options));
  log_template();
}

std::shared_ptr<const Collator> ChatSetup::make_collator() const {
  return make_causal_lm_collator(context(), max_seq_length());
}

TaskSetup::Files ChatSetup::model_files(const Files& of_start) const {
  Files files;
  if (template_ != nullptr) {
    files.emplace_back(kChatTemplateFile, with_defaults(template_->joined_text()));
  }
  Json config = config_in(of_start);
  const std::vector<int64_t> ends = end_ids(config);
  if (ends.size() == 1) {
    config["eos_token_id"] = ends.front();
  } else if (!ends.empty()) {
    config["eos_token_id"] = ends;
  }
  files.emplace_back(kGenerationConfigFile, config.dump(2) + "\n");
  return files;
}

void ChatSetup::log_template() const {
  if (template_ == nullptr) return;
  const std::string& end = renderer_->stop_token();
  const auto id = end.empty() ? std::nullopt : context().tokenizer.token_to_id(end);
  const std::string& where = template_->where();
  log::info((where.starts_with("chat template") ? where : "chat template: " + where) +
            (end.empty() ? "" : "; an answer ends with '" + end + "'"));
  if (!id && renderer_->is_probed()) {
    log::warning(template_->where() +
                 ": no special token of the tokenizer ends an answer, so that the model may not "
                 "learn to stop; use a template of this tokenizer");
  }
}

// Puts chat_template_kwargs into the template as defaults, so that the model is asked as it was
// taught by programs that do not know them.
std::string ChatSetup::with_defaults(const std::string& text) const {
  const std::string& kwargs = args().chat_template_kwargs.text;
  if (kwargs.empty()) return text;
  std::string defaults;
  const Json json = parse_json(kwargs, "chat_template_kwargs");
  for (const auto& [name, value] : json.items()) {
    defaults += "{% if " + name + " is not defined %}{% set " + name + " = " +
                chat::to_repr(chat::Value::from_json(value)).str() + " %}{% endif %}\n";
  }
  return defaults + text;
}

nlohmann::ordered_json ChatSetup::config_in(const Files& of_start) {
  for (const auto& [name, content] : of_start) {
    if (name == kGenerationConfigFile) return parse_json(content, name);
  }
  return Json::object();
}

std::vector<int64_t> ChatSetup::end_ids(const Json& config) const {
  std::vector<int64_t> ends;
  const auto add = [&](int64_t id) {
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  };
  const Json known = config.value("eos_token_id", Json());
  if (known.is_number_integer()) add(known.get<int64_t>());
  for (const Json& id : known.is_array() ? known : Json::array()) {
    if (id.is_number_integer()) add(id.get<int64_t>());
  }
  if (ends.empty()) {
    for (const int64_t id : eos_token_ids_of(context().model)) add(id);
  }
  const std::string& end = renderer_->stop_token();
  if (!end.empty()) {
    if (const auto id = context().tokenizer.token_to_id(end)) add(*id);
  }
  const auto& eos = context().tokenizer.special_tokens().eos;
  if (eos && eos->id >= 0) add(eos->id);
  return ends;
}

}  // namespace finetune
