// SPDX-License-Identifier: MIT
#include "task/generate/text_generation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/chat/chat_renderer.h"
#include "finetune/chat/find_template.h"
#include "finetune/model/model.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/chat_tokens.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "task/generate/generation_config.h"
#include "task/generate/generator.h"
#include "task/generate/streamed_text.h"
#include "task/predict/head_runner.h"
#include "task/predict/text_encoder.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

class TextGenerator final : public Predictor {
 public:
  TextGenerator(const std::string& folder, const PredictOptions& options)
      : folder_(resolve_model_folder(folder, "MODEL_DIR")),
        config_(read_model_config(folder_)),
        encoder_(folder_, config_),
        device_(pick_prediction_device(options.use_cpu)),
        options_(options),
        generation_(read_generation_config(folder_, config_, options)) {
    if (!is_causal(config_)) {
      throw Error(ErrorKind::kData, folder_ + ": a " + config_.model_type +
                                        " predicts masked words and generates no text");
    }
    model_ =
        load_for_prediction(std::nullopt, "text-generation", folder_, config_, device_, options_);
    if (options_.chat) prepare_chat();
    generator_ = std::make_unique<Generator>(*model_, device_, generation_,
                                             static_cast<uint64_t>(options_.seed));
    // In a conversation on a terminal, earlier turns do not pass through the model again.
    if (options_.chat && options_.on_text) generator_->keep_cache();
  }

  std::vector<Json> answer(const std::vector<Query>& queries) override {
    std::vector<Json> answers;
    for (const Query& query : queries) {
      if (renderer_ != nullptr) {
        answers.push_back(continue_conversation(query));
        ++prompts_;
        continue;
      }
      const std::vector<int32_t> prompt = encode(query);
      const std::vector<int32_t> ids = complete(prompt);
      const std::string text = encoder_.tokenizer().decode(ids, /*skip_special_tokens=*/true);
      Json answer = Json::object();
      answer["generated_text"] = options_.return_full_text ? query.text + text : text;
      answers.push_back(Json::array({std::move(answer)}));
      ++prompts_;
    }
    return answers;
  }

 private:
  [[nodiscard]] int64_t longest() const { return config_.max_length(); }

  void prepare_chat() {
    auto chat_template =
        chat::find_chat_template(folder_, options_.chat_template_path, "--chat_template_path");
    if (chat_template == nullptr) {
      throw Error(ErrorKind::kUsage, folder_ +
                                         ": the model has no chat template; leave --chat out, or "
                                         "name one with --chat_template_path (chatml, ...)");
    }
    chat::RenderOptions options = chat_render_options(
        encoder_.tokenizer(), options_.chat_template_kwargs, "--chat_template_kwargs");
    options.date = parse_chat_date(chat_date_today());
    renderer_ = std::make_unique<chat::ChatRenderer>(std::move(chat_template), std::move(options));
    const std::string& end = renderer_->stop_token();
    const auto id = end.empty() ? std::nullopt : encoder_.tokenizer().token_to_id(end);
    if (id) generation_.eos_token_ids.push_back(*id);
  }

  // Returns the conversation with an answer as its last message.
  [[nodiscard]] Json continue_conversation(const Query& query) {
    try {
      const size_t bad = utf8::find_invalid(query.text);
      if (bad != std::string_view::npos) {
        throw Error(ErrorKind::kData, format_text("byte {} is not valid UTF-8", bad + 1));
      }
      Json row =
          query.conversation.empty()
              ? Json{{"messages", Json::array({{{"role", "user"}, {"content", query.text}}})}}
              : parse_json(query.conversation, query.where);
      const ChatPrompt prompt =
          make_chat_prompt(chat::read_conversation(row), *renderer_, encoder_.tokenizer());
      encoder_.check(prompt.ids, query.where);
      check_room(prompt.ids, query.where);
      const std::vector<int32_t> ids = complete(prompt.ids, "conversation");
      return prompt.answered(encoder_.tokenizer().decode(ids, /*skip_special_tokens=*/true));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData || query.where.empty() ||
          std::string_view(error.what()).starts_with(query.where)) {
        throw;
      }
      throw Error(ErrorKind::kData, query.where + ": " + error.what());
    }
  }

  void check_room(const std::vector<int32_t>& ids, const std::string& where) const {
    if (std::ssize(ids) < longest()) return;
    throw Error(ErrorKind::kData,
                format_text("{}: has {} tokens and the model takes {}: there is no room to "
                            "continue; shorten it",
                            where, ids.size(), longest()));
  }

  [[nodiscard]] std::vector<int32_t> encode(const Query& query) const {
    const Tokenizer& tokenizer = encoder_.tokenizer();
    std::vector<int32_t> ids = tokenizer.add_special_tokens(encoder_.ids(query.text, query.where));
    if (ids.empty() && config_.bos_token_id) {  // generate() starts so
      ids.push_back(static_cast<int32_t>(*config_.bos_token_id));
    }
    if (ids.empty())
      throw Error(ErrorKind::kData, query.where + ": has no tokens to continue from");
    check_room(ids, query.where);
    return ids;
  }

  // Returns the tokens after the prompt.
  [[nodiscard]] std::vector<int32_t> complete(const std::vector<int32_t>& prompt,
                                              const std::string& text = "text") {
    StreamedText streamed(encoder_.tokenizer(), options_.on_text);
    std::vector<int32_t> ids =
        explaining_lack_of_memory("lower --max_new_tokens, or shorten the " + text, [&] {
          return generator_->complete(prompt, prompts_, [&](int32_t id) { streamed.add(id); });
        });
    streamed.end();
    return ids;
  }

  std::string folder_;
  ModelConfig config_;
  TextEncoder encoder_;
  c10::Device device_;
  PredictOptions options_;
  GenerationConfig generation_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<chat::ChatRenderer> renderer_;  // null: texts are continued
  std::unique_ptr<Generator> generator_;
  uint64_t prompts_ = 0;  // number of prompts answered
};

}  // namespace

std::unique_ptr<Predictor> make_text_generator(const std::string& folder,
                                               const PredictOptions& options) {
  return std::make_unique<TextGenerator>(folder, options);
}

const Pipeline& text_generation_pipeline() {
  static const Pipeline pipeline = {.name = "text-generation",
                                    .class_suffix = "ForCausalLM",
                                    .other_suffix = "LMHeadModel",
                                    .make_predictor = make_text_generator};
  return pipeline;
}

}  // namespace finetune
