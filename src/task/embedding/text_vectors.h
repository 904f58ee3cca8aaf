// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "finetune/task/queries.h"
#include "finetune/tensor/tensor.h"
#include "task/predict/head_runner.h"

namespace finetune {

// Makes vectors of texts with the model in a folder.
class TextVectors {
 public:
  // Throws Error(kConfig | kData) if the folder has no usable model of embeddings.
  TextVectors(const std::string& folder, const PredictOptions& options);

  // Returns the vectors [texts, D], float32, on the CPU. Every text begins with `prompt`. Throws
  // Error(kData) that starts with the text's position.
  [[nodiscard]] Tensor of(const std::vector<Query>& texts, std::string_view prompt = "");
  // The model's prompts, by name.
  using Prompts = std::vector<std::pair<std::string, std::string>>;
  [[nodiscard]] const Prompts& prompts() const { return runner_.config().embedding.prompts; }

 private:
  [[nodiscard]] ModelText encode(const std::string& text, const std::string& where);

  HeadRunner runner_;
  int64_t batch_size_;
};

// Returns the number of tokens of a text that begins with `prompt` up to the prompt's end, special
// ones included.
[[nodiscard]] int64_t tokens_of_prompt(const Tokenizer& tokenizer, const std::string& prompt);

}  // namespace finetune
