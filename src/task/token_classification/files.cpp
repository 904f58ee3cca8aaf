// SPDX-License-Identifier: MIT
#include <ATen/ops/argmax.h>

#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

class TokenLabels final : public PredictionFiles {
 public:
  TokenLabels(std::vector<std::string> labels,
              std::shared_ptr<const TokenClassificationDataset> dataset)
      : labels_(std::move(labels)), dataset_(std::move(dataset)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor classes = at::argmax(outputs.logits, -1).cpu().contiguous();  // [rows, length]
    const int64_t* row = classes.const_data_ptr<int64_t>();
    for (int64_t r = 0; r < batch.rows; ++r, row += batch.length) {
      std::string line;
      for (const int64_t token : labelled_tokens(batch, r)) {
        line += (line.empty() ? "" : " ") + labels_.at(static_cast<size_t>(row[token]));
      }
      text_ += line + "\n";
    }
  }

  void write(FileSystem& files, const std::string& output_dir) const override {
    files.make_directories(output_dir);
    files.write_atomically(join_path(output_dir, "predictions.txt"), text_);
  }

 private:
  [[nodiscard]] std::vector<int64_t> labelled_tokens(const Batch& batch, int64_t row) const {
    const int64_t begin = row * batch.length;
    std::vector<int64_t> tokens;
    for (int64_t t = 0; t < batch.length && !batch.labels.empty(); ++t) {
      if (batch.labels[static_cast<size_t>(begin + t)] != kIgnoredLabel) tokens.push_back(t);
    }
    if (!tokens.empty()) return tokens;
    const auto words = dataset_->words(batch.samples.at(static_cast<size_t>(row)));
    const bool padded_left = batch.attention_mask[static_cast<size_t>(begin)] == 0;
    const int64_t first = padded_left ? batch.length - static_cast<int64_t>(words.size()) : 0;
    int32_t last_word = TokenClassificationDataset::kNoWord;
    for (size_t t = 0; t < words.size(); ++t) {
      if (words[t] == TokenClassificationDataset::kNoWord || words[t] == last_word) continue;
      last_word = words[t];
      tokens.push_back(first + static_cast<int64_t>(t));
    }
    return tokens;
  }

  std::vector<std::string> labels_;
  std::shared_ptr<const TokenClassificationDataset> dataset_;
  std::string text_;
};

}  // namespace

std::unique_ptr<PredictionFiles> make_token_classification_files(
    std::shared_ptr<const TokenClassificationDataset> data, std::vector<std::string> labels) {
  return std::make_unique<TokenLabels>(std::move(labels), std::move(data));
}

}  // namespace finetune
