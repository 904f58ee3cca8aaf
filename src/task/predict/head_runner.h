// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/task/predictor.h"
#include "finetune/tensor/device.h"
#include "task/predict/text_encoder.h"

namespace finetune {

// Throws Error(kData) if tensors are missing, because an untrained head would answer at random.
void require_whole(const LoadReport& report, const std::string& folder, const std::string& what);

// Throws Error(kData) if a model's outputs are NaN or Inf, because an answer would be made from
// them. `folder`: the model's, for the message; may be empty.
void require_finite(const Tensor& logits, const std::string& folder);

// Makes the model of a folder, whose config.json is `config`, for predictions alone: its weights,
// and what products make of them, stay as they are. Throws Error(kUsage) for an adapter with
// products in int8, Error(kData) as require_whole().
[[nodiscard]] std::unique_ptr<Model> load_for_prediction(
    std::optional<Head> head, const std::string& what, const std::string& folder,
    const ModelConfig& config, c10::Device device, const PredictOptions& options);

// A trained encoder with a head, and its tokenizer.
class HeadRunner {
 public:
  // `what` is the task's name, for messages. Throws Error(kConfig | kData).
  HeadRunner(Head head, const std::string& what, const std::string& folder,
             const PredictOptions& options);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] TextEncoder& encoder() { return encoder_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return encoder_.tokenizer(); }
  [[nodiscard]] const ModelConfig& config() const { return model_->config(); }

  // Calls `take` for each row in order with its logits in float32 on the CPU: [labels], or [T,
  // labels] for heads over tokens, where T is the number of the row's tokens without padding.
  // The first `unpooled` tokens of each row are left out of a pooling.
  void run(std::span<const ModelText> rows, int64_t batch_size,
           const std::function<void(size_t row, const Tensor& logits)>& take, int64_t unpooled = 0);

 private:
  std::string folder_;
  c10::Device device_;
  std::unique_ptr<Model> model_;
  TextEncoder encoder_;
};

}  // namespace finetune
