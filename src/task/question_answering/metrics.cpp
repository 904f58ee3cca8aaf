// SPDX-License-Identifier: MIT

#include <algorithm>
#include <optional>

#include "finetune/base/error.h"
#include "task/question_answering/question_answering.h"

namespace finetune {
namespace {

// Returns the number of padded tokens at the start of a row, for tokenizers that pad on the left.
size_t padding_in_front(const Batch& batch, size_t row) {
  const auto length = static_cast<size_t>(batch.length);
  if (batch.attention_mask.empty()) return 0;
  const auto begin = batch.attention_mask.begin() + static_cast<ptrdiff_t>(row * length);
  const auto found = std::find(begin, begin + batch.length, uint8_t{1});
  return found == begin + batch.length ? 0 : static_cast<size_t>(found - begin);
}

class QuestionAnsweringMetrics final : public Metrics {
 public:
  QuestionAnsweringMetrics(std::shared_ptr<const QuestionAnsweringDataset> data,
                           const AnswerOptions& options,
                           std::function<void(const Answer&, const Question&)> take)
      : data_(std::move(data)),
        take_(std::move(take)),
        finder_(options),
        scores_(options.version_2_with_negative) {}

  void add(const Batch& batch, const Outputs& outputs) override {
    FT_CHECK(batch.samples.size() == static_cast<size_t>(batch.rows), "a window for each row");
    const Tensor logits = outputs.logits.to(at::kCPU, at::kFloat).permute({2, 0, 1}).contiguous();
    const auto length = static_cast<size_t>(logits.size(2));
    const auto size = static_cast<size_t>(batch.rows) * length;
    const std::span<const float> starts(logits.const_data_ptr<float>(), size);
    const std::span<const float> ends(logits.const_data_ptr<float>() + size, size);
    std::vector<std::optional<TextRange>> ranges;
    for (size_t row = 0; row < batch.samples.size(); ++row) {
      const int64_t sample = batch.samples[row];
      const int64_t question = data_->question_of(sample);
      if (question_ && *question_ != question) finish();
      question_ = question;
      const size_t padding = padding_in_front(batch, row);
      ranges.clear();
      for (size_t token = 0; token < length - padding; ++token) {
        ranges.push_back(data_->range(sample, static_cast<int64_t>(token)));
      }
      finder_.add(starts.subspan(row * length + padding, length - padding),
                  ends.subspan(row * length + padding, length - padding), ranges);
      const bool last = sample + 1 == data_->size() || data_->question_of(sample + 1) != question;
      if (last) finish();
    }
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    return scores_.compute();
  }

 private:
  void finish() {
    const Question& question = data_->questions().at(static_cast<size_t>(*question_));
    const Answer answer = finder_.finish(question.id, question.context);
    scores_.add(answer.text, question.answers);
    if (take_) take_(answer, question);
    question_.reset();
  }

  std::shared_ptr<const QuestionAnsweringDataset> data_;
  std::function<void(const Answer&, const Question&)> take_;
  AnswerFinder finder_;
  AnswerScores scores_;
  std::optional<int64_t> question_;  // the question of the windows in finder_
};

}  // namespace

std::unique_ptr<Metrics> make_question_answering_metrics(
    std::shared_ptr<const QuestionAnsweringDataset> data, const AnswerOptions& options,
    std::function<void(const Answer&, const Question&)> take) {
  return std::make_unique<QuestionAnsweringMetrics>(std::move(data), options, std::move(take));
}

}  // namespace finetune
