// SPDX-License-Identifier: MIT
#include <ATen/ops/argmax.h>
#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "task/predict/worst_samples.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

constexpr size_t kMostWrongTokens = 5;  // of a sample that are named

class TokenLabels final : public PredictionFiles {
 public:
  TokenLabels(std::vector<std::string> labels,
              std::shared_ptr<const TokenClassificationDataset> dataset)
      : labels_(std::move(labels)), dataset_(std::move(dataset)) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    const Tensor classes = at::argmax(outputs.logits, -1).cpu().contiguous();  // [rows, length]
    const int64_t* row = classes.const_data_ptr<int64_t>();
    for (int64_t r = 0; r < batch.rows; ++r, row += batch.length) {
      text_ += join(labels_of_words(batch, r, row), " ") + "\n";
    }
    if (batch.targets > 0) rate(batch, outputs, classes);
  }

  void write(FileSystem& files, const std::string& output_dir) const override {
    files.make_directories(output_dir);
    files.write_atomically(join_path(output_dir, kTokenLabelsFile), text_);
    if (without_token_ > 0) {
      log::warning(
          format_text("{} words of test_file have no token (empty, of zero width, or beyond "
                      "max_seq_length): {} has O for them",
                      without_token_, kTokenLabelsFile));
    }
    worst_.write(files, output_dir, "test");
  }

 private:
  // By the mean loss of a sample's tokens.
  void rate(const Batch& batch, const Outputs& outputs, const Tensor& classes) {
    const Tensor shares = at::log_softmax(outputs.logits.to(at::kFloat).cpu(), -1).contiguous();
    const auto names = static_cast<size_t>(shares.size(-1));
    const auto length = static_cast<size_t>(batch.length);
    const float* const all = shares.const_data_ptr<float>();
    const int64_t* const best = classes.const_data_ptr<int64_t>();
    for (size_t row = 0; row < static_cast<size_t>(batch.rows); ++row) {
      double sum = 0.0;
      int64_t targets = 0;
      std::vector<WrongToken> wrong;
      for (size_t position = row * length; position < (row + 1) * length; ++position) {
        if (batch.labels[position] == kIgnoredLabel) continue;
        const auto label = static_cast<size_t>(batch.labels[position]);
        const double share = all[position * names + label];
        sum -= share;
        ++targets;
        if (best[position] == batch.labels[position]) continue;
        wrong.push_back({.token = static_cast<int64_t>(position - row * length),
                         .label = label,
                         .predicted = static_cast<size_t>(best[position]),
                         .log_share = share});
      }
      if (targets == 0) continue;
      const int64_t sample = batch.samples.at(row);
      const double mean = sum / static_cast<double>(targets);
      worst_.add(sample, mean, {.first = mean},
                 [&] { return described(batch, row, sample, std::move(wrong)); });
    }
  }

  struct WrongToken {
    int64_t token = 0;
    size_t label = 0;
    size_t predicted = 0;
    double log_share = 0.0;  // of the right label
  };

  [[nodiscard]] WorstSamples::Json described(const Batch& batch, size_t row, int64_t sample,
                                             std::vector<WrongToken> wrong) const {
    std::ranges::stable_sort(wrong, {}, &WrongToken::log_share);
    WorstSamples::Json list = WorstSamples::Json::array();
    const auto words = dataset_->words(sample);
    const int64_t first = first_token(batch, static_cast<int64_t>(row), words.size());
    for (const WrongToken& token : wrong) {
      if (list.size() == kMostWrongTokens) break;
      list.push_back({{"word", words[static_cast<size_t>(token.token - first)]},
                      {"label", labels_.at(token.label)},
                      {"predicted", labels_.at(token.predicted)},
                      {"score", std::exp(token.log_share)}});
    }
    return {{"wrong_tokens", wrong.size()}, {"wrong", std::move(list)}};
  }

  // The index after the padding, where the tokenizer pads on the left.
  [[nodiscard]] static int64_t first_token(const Batch& batch, int64_t row, size_t tokens) {
    const bool padded_left = batch.attention_mask[static_cast<size_t>(row * batch.length)] == 0;
    return padded_left ? batch.length - static_cast<int64_t>(tokens) : 0;
  }

  // The predicted label of each word: that of its first token. A word without one (empty, of zero
  // width, or beyond max_seq_length) is outside of all entities. `classes`: of the row's tokens.
  [[nodiscard]] std::vector<std::string> labels_of_words(const Batch& batch, int64_t row,
                                                         const int64_t* classes) {
    const int64_t sample = batch.samples.at(static_cast<size_t>(row));
    const auto words = dataset_->words(sample);
    const int64_t first = first_token(batch, row, words.size());
    std::vector<std::string> labels(static_cast<size_t>(dataset_->word_count(sample)));
    for (size_t t = 0; t < words.size(); ++t) {
      if (words[t] == TokenClassificationDataset::kNoWord) continue;
      std::string& label = labels.at(static_cast<size_t>(words[t]));
      if (label.empty())
        label = labels_.at(static_cast<size_t>(classes[first + static_cast<int64_t>(t)]));
    }
    for (std::string& label : labels) {
      if (!label.empty()) continue;
      label = "O";
      ++without_token_;
    }
    return labels;
  }

  std::vector<std::string> labels_;
  int64_t without_token_ = 0;  // words
  std::shared_ptr<const TokenClassificationDataset> dataset_;
  std::string text_;
  WorstSamples worst_{"loss"};
};

}  // namespace

std::unique_ptr<PredictionFiles> make_token_classification_files(
    std::shared_ptr<const TokenClassificationDataset> data, std::vector<std::string> labels) {
  return std::make_unique<TokenLabels>(std::move(labels), std::move(data));
}

}  // namespace finetune
