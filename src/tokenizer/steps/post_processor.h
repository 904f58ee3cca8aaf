// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune::tokenizer {

// The `post_processor` of tokenizer.json: BertProcessing, RobertaProcessing, TemplateProcessing,
// ByteLevel and Sequences of them.
class PostProcessor {
 public:
  // How RobertaProcessing and ByteLevel trim white space from the ranges of tokens.
  struct Trim {
    bool add_prefix_space = false;
    bool after_special = false;  // special tokens are already in front of the text
  };

  PostProcessor() = default;  // adds nothing
  // Throws Error(kData) naming unsupported parts; `where` is the prefix of its message.
  PostProcessor(const nlohmann::ordered_json& json, const std::string& where);
  [[nodiscard]] static PostProcessor roberta(int32_t cls, int32_t sep, Trim trim);
  [[nodiscard]] static PostProcessor bert(int32_t cls, int32_t sep);

  [[nodiscard]] ModelText combine(std::span<const int32_t> first,
                                  std::optional<std::span<const int32_t>> second) const;
  [[nodiscard]] int64_t num_added(bool pair) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  [[nodiscard]] const std::vector<Trim>& trims() const { return trims_; }
  // Returns every id that may be added.
  [[nodiscard]] std::vector<int32_t> added_ids() const;

 private:
  enum class Kind { kBert, kRoberta, kTemplate };
  // Special tokens (`ids`), or the text with index `text`.
  struct TemplatePiece {
    std::vector<int32_t> ids{};
    int32_t text = ModelText::kSpecial;
    uint8_t token_type = 0;
  };
  struct Step {
    Kind kind;
    int32_t cls = -1;
    int32_t sep = -1;
    std::vector<TemplatePiece> single{};
    std::vector<TemplatePiece> pair{};
  };

  void add(const nlohmann::ordered_json& json, const std::string& where);
  static std::vector<TemplatePiece> read_template(const nlohmann::ordered_json& json,
                                                  const char* key, const std::string& where);
  [[nodiscard]] static std::vector<ModelText> apply(const Step& step, std::vector<ModelText> parts);

  std::vector<Step> steps_;
  std::vector<Trim> trims_;
};

}  // namespace finetune::tokenizer
