// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace finetune {

// Fills masks with a trained model, as transformers' pipeline("fill-mask") answers.
class FillMask {
 public:
  // Throws Error(kConfig | kData) where the folder holds no usable model and tokenizer.
  FillMask(const std::string& model_folder, bool use_cpu);
  ~FillMask();

  struct Text {
    std::string text;
    std::string where;  // starts messages: "text 2", "in.txt:17"
  };

  // One answer for each text: with one mask a list of {score, token, token_str, sequence}, best
  // first; with several, a list of such lists. Texts are taken together in batches of `batch_size`.
  // Throws Error(kData) for a text without a mask or longer than the model allows.
  [[nodiscard]] std::vector<nlohmann::ordered_json> operator()(const std::vector<Text>& texts,
                                                               int64_t top_k,
                                                               int64_t batch_size) const;

  [[nodiscard]] const std::string& mask_token() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace finetune
