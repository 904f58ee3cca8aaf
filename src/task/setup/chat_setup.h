// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "finetune/chat/chat_renderer.h"
#include "task/setup/labelled_setup.h"

namespace finetune {

// The common part of tasks that train a decoder on conversations: how they are rendered, and the
// files that a trained model is asked with.
class ChatSetup : public LabelledSetup {
 public:
  [[nodiscard]] std::shared_ptr<const Collator> make_collator() const override;
  // The template that was used, and the tokens that end an answer.
  [[nodiscard]] Files model_files(const Files& of_start) const override;

 protected:
  using Json = nlohmann::ordered_json;

  // `masks`: what is learned; `identity`: the same as an object, part of the cache's key.
  ChatSetup(const SetupContext& context, chat::RenderOptions masks, const Json& identity);

  [[nodiscard]] const std::shared_ptr<const chat::ChatRenderer>& renderer() const {
    return renderer_;
  }
  // What the renderer does (ChatOptions::renderer_identity).
  [[nodiscard]] const std::string& renderer_identity() const { return identity_; }
  // Returns generation_config.json of the starting model; an empty object if it has none.
  [[nodiscard]] static Json config_in(const Files& of_start);
  // Returns every token that ends an answer; `config`: of the starting model.
  [[nodiscard]] std::vector<int64_t> end_ids(const Json& config) const;

 private:
  void log_template() const;
  [[nodiscard]] std::string with_defaults(const std::string& text) const;

  std::shared_ptr<const chat::ChatTemplate> template_;  // null: the tokenizer has none
  std::shared_ptr<const chat::ChatRenderer> renderer_;
  std::string identity_;
};

}  // namespace finetune
