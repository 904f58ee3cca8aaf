// SPDX-License-Identifier: MIT
#include <c10/core/GradMode.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/random.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/chat/chat_renderer.h"
#include "finetune/chat/find_template.h"
#include "finetune/model/model.h"
#include "finetune/model/model_folder.h"
#include "finetune/task/chat_tokens.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/out_of_memory.h"
#include "task/clm/clm.h"
#include "task/clm/generation_config.h"
#include "task/clm/next_token.h"
#include "task/clm/streamed_text.h"
#include "task/head_runner.h"
#include "task/model_input.h"
#include "task/text_encoder.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

class TextGenerator final : public Predictor {
 public:
  TextGenerator(const std::string& folder, const PredictOptions& options)
      : folder_(resolve_model_folder(folder, "MODEL_DIR")),
        config_(read_model_config(folder_)),
        encoder_(folder_, config_),
        device_(pick_device(options.use_cpu)),
        options_(options),
        generation_(read_generation_config(folder_, config_, options)) {
    if (!is_causal(config_)) {
      throw Error(ErrorKind::kData, folder_ + ": a " + config_.model_type +
                                        " predicts masked words and generates no text");
    }
    model_ = make_language_model(
        config_, 0, device_,
        {.fused = true, .draw_weights = false, .base = base_format(config_, folder_)});
    require_whole(load_folder_weights(*model_, folder_), folder_, "text-generation");
    model_->store().hold_factors();  // the weights stay as they are
    if (options_.chat) prepare_chat();
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
      const std::vector<int32_t> ids = explaining_lack_of_memory(
          "lower --max_new_tokens, or shorten the text", [&] { return complete(prompt); });
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
    const std::time_t now = std::time(nullptr);
    gmtime_r(&now, &options.date);
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
      chat::Conversation conversation = chat::read_conversation(row);
      if (conversation.messages.empty()) return complete_prompt(conversation, query);
      if (conversation.messages.back().role == "assistant") conversation.messages.pop_back();
      if (conversation.messages.empty()) {
        throw Error(ErrorKind::kData, "there is no question before the answer");
      }
      const std::vector<int32_t> prompt =
          encoder_.tokenizer().encode(renderer_->prompt_of(conversation));
      if (prompt.empty()) {
        throw Error(ErrorKind::kData, "the chat template makes an empty text of the conversation");
      }
      check_room(prompt, query.where);
      const std::vector<int32_t> ids = explaining_lack_of_memory(
          "lower --max_new_tokens, or shorten the conversation", [&] { return complete(prompt); });
      Json messages = Json::array();
      for (const chat::Message& message : conversation.messages) {
        messages.push_back(Json::parse(chat::to_json(message.fields, {}).str()));
      }
      messages.push_back(
          {{"role", "assistant"},
           {"content", encoder_.tokenizer().decode(ids, /*skip_special_tokens=*/true)}});
      return {{"messages", std::move(messages)}};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData || query.where.empty() ||
          std::string_view(error.what()).starts_with(query.where)) {
        throw;
      }
      throw Error(ErrorKind::kData, query.where + ": " + error.what());
    }
  }

  // Continues the prompt of a row of plain text.
  [[nodiscard]] Json complete_prompt(const chat::Conversation& conversation, const Query& query) {
    if (!conversation.prompt) {
      throw Error(ErrorKind::kData, "has no messages; leave --chat out to continue plain text");
    }
    Query prompt;
    prompt.where = query.where;
    prompt.text = *conversation.prompt;
    const std::vector<int32_t> ids = complete(encode(prompt));
    return {{"prompt", *conversation.prompt},
            {"completion", encoder_.tokenizer().decode(ids, /*skip_special_tokens=*/true)}};
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

  // Returns the tokens after the prompt, with the one that ends the text. The cache keeps keys and
  // values, so each token passes through the model once.
  [[nodiscard]] std::vector<int32_t> complete(const std::vector<int32_t>& prompt) {
    const c10::NoGradGuard no_grad;
    NextToken next(generation_);
    StreamedText streamed(encoder_.tokenizer(), options_.on_text);
    KeyValueCache cache = take_cache(prompt);
    std::vector<int32_t> text = prompt;
    const auto made = [&] { return std::span(text).subspan(prompt.size()); };
    const int64_t most = std::min(generation_.max_new_tokens, longest() - std::ssize(prompt));
    while (std::ssize(made()) < most) {
      interrupt::throw_if_requested("generating text");
      const auto known = static_cast<size_t>(cache.length);
      Tensor scores = next_scores(std::span(text).subspan(known), cache);
      const int32_t id =
          next.choose({scores.mutable_data_ptr<float>(), static_cast<size_t>(scores.numel())}, text,
                      uniform(std::ssize(text)));
      text.push_back(id);
      streamed.add(id);
      if (ends(id)) break;
    }
    streamed.end();
    keep_cache(std::move(cache), text);
    return {made().begin(), made().end()};
  }

  // In a conversation on a terminal, the tokens of earlier turns do not pass through the model
  // again.
  [[nodiscard]] KeyValueCache take_cache(const std::vector<int32_t>& prompt) {
    const bool continues = std::ssize(cached_) < std::ssize(prompt) &&
                           std::equal(cached_.begin(), cached_.end(), prompt.begin());
    return continues ? std::exchange(cache_, {}) : KeyValueCache();
  }
  void keep_cache(KeyValueCache cache, const std::vector<int32_t>& text) {
    if (renderer_ == nullptr || !options_.on_text) return;
    cached_.assign(text.begin(), text.begin() + cache.length);
    cache_ = std::move(cache);
  }

  // Returns the logits [V] of the token after `ids`, on the CPU.
  [[nodiscard]] Tensor next_scores(std::span<const int32_t> ids, KeyValueCache& cache) {
    const std::vector<int64_t> row(ids.begin(), ids.end());
    const auto size = static_cast<int64_t>(row.size());
    ModelInput input;
    input.input_ids = to_device(row, device_).view({1, size});
    input.cache = &cache;
    const Tensor last = to_device(std::vector<int64_t>{size - 1}, device_);
    return model_->logits(input, last).to(at::kFloat).cpu().contiguous()[0];
  }

  [[nodiscard]] bool ends(int32_t id) const {
    const auto& ends = generation_.eos_token_ids;
    return std::ranges::find(ends, int64_t{id}) != ends.end();
  }

  // Depends only on (seed, prompt, position), not on what was generated before.
  [[nodiscard]] double uniform(int64_t position) const {
    return random::Sequence(random::make_key(static_cast<uint64_t>(options_.seed),
                                             random::Purpose::kGeneration, prompts_,
                                             static_cast<uint64_t>(position)))
        .uniform();
  }

  std::string folder_;
  ModelConfig config_;
  TextEncoder encoder_;
  c10::Device device_;
  PredictOptions options_;
  GenerationConfig generation_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<chat::ChatRenderer> renderer_;  // null: texts are continued
  std::vector<int32_t> cached_;                   // the ids that cache_ has
  KeyValueCache cache_;
  uint64_t prompts_ = 0;  // number of prompts answered
};

}  // namespace

std::unique_ptr<Predictor> make_text_generator(const std::string& folder,
                                               const PredictOptions& options) {
  return std::make_unique<TextGenerator>(folder, options);
}

}  // namespace finetune
