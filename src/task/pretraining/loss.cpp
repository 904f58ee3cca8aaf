// SPDX-License-Identifier: MIT
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>

#include "finetune/task/words_loss.h"
#include "finetune/tensor/device.h"
#include "task/loss/head_task.h"
#include "task/loss/masked_words.h"
#include "task/loss/model_input.h"
#include "task/pretraining/pretraining.h"

namespace finetune {
namespace {

// Accuracy of the most probable answer, and the mean loss.
class Score {
 public:
  // `best`: the argmax of the logits, used if `logits` is undefined.
  void add(const Tensor& logits, const Tensor& best, const std::vector<int64_t>& labels,
           const Outputs::TermMean& term) {
    if (term.targets == 0) return;
    const Tensor answers = best.defined() ? best : logits.argmax(-1);
    correct_ += answers.eq(to_device(labels, answers.device())).sum().item<int64_t>();
    targets_ += term.targets;
    loss_ += term.mean * static_cast<double>(term.targets);
  }
  [[nodiscard]] double accuracy() const { return share(static_cast<double>(correct_)); }
  [[nodiscard]] double loss() const { return share(loss_); }

 private:
  [[nodiscard]] double share(double sum) const {
    return targets_ > 0 ? sum / static_cast<double>(targets_) : 0.0;
  }

  int64_t correct_ = 0;
  int64_t targets_ = 0;
  double loss_ = 0.0;
};

class PretrainingMetrics final : public Metrics {
 public:
  void add(const Batch& batch, const Outputs& outputs) override {
    if (outputs.terms.empty()) return;
    MaskedWords words(batch);
    words.fill((outputs.best.defined() ? outputs.best : outputs.logits).size(0));
    words_.add(outputs.logits, outputs.best, words.labels, outputs.terms[0]);
    // kIgnoredLabel is never the most probable class, so such samples add nothing.
    next_.add(outputs.next_sentence_logits, Tensor(), batch.classes, outputs.terms[1]);
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    return {{"masked_lm_accuracy", words_.accuracy()},
            {"next_sentence_accuracy", next_.accuracy()},
            {"masked_lm_loss", words_.loss()},
            {"next_sentence_loss", next_.loss()}};
  }

 private:
  Score words_;
  Score next_;
};

class Pretraining final : public Task {
 public:
  Pretraining(Model& model, c10::Device device, const LossOptions& options)
      : model_(model), device_(device), options_(options) {}

  [[nodiscard]] int64_t terms() const override { return 2; }

  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    const int64_t next = count_known(batch.classes);
    return {batch.targets - next, next};
  }

  // Devlin et al. 2019, section 3.1. The head over the vocabulary runs only on masked words.
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    const MaskedWords words(batch, compiles_shapes(device_));
    if (batch.targets == 0) return {Tensor(), Tensor()};
    words.check_labels(model_.config().vocab_size);
    const ModelInput input = input_of(batch, words, pass.dropout);
    const Encoded encoded = model_.encode(input);
    const Tensor next = model_.next_sentence(input, encoded);
    Tensor of_words;
    if (words.size() > 0) {
      of_words = words_loss(model_, input, encoded, to_device(words.positions, device_),
                            to_device(words.labels, device_),
                            {.label_smoothing_factor = options_.label_smoothing_factor,
                             .gradient_scale = pass.scale(0)});
    }
    return {of_words, next_loss(real_rows(next, batch), batch)};
  }

  Outputs evaluate(const Batch& batch) override {
    if (batch.targets == 0) return {};
    const c10::NoGradGuard no_grad;
    const MaskedWords words(batch, compiles_shapes(device_));
    const ModelInput input = input_of(batch, words, std::nullopt);
    const Encoded encoded = model_.encode(input);
    const Tensor next = model_.next_sentence(input, encoded);
    Outputs outputs{.logits = {},
                    .next_sentence_logits = real_rows(next, batch).to(at::kFloat),
                    .targets = batch.targets};
    Tensor of_words;
    if (words.size() > 0) {
      const Tensor positions = to_device(words.positions, device_);
      outputs.logits = model_.head_logits(input, encoded.tokens_at(positions)).to(at::kFloat);
      of_words = at::cross_entropy_loss(outputs.logits, to_device(words.labels, device_), {},
                                        at::Reduction::Sum, kIgnoredLabel,
                                        options_.label_smoothing_factor);
    }
    const std::vector<int64_t> counts = count_targets(batch);
    const std::vector<Tensor> sums = {of_words, next_loss(outputs.next_sentence_logits, batch)};
    for (size_t term = 0; term < sums.size(); ++term) {
      const double mean = sums[term].defined()
                              ? sums[term].item<double>() / static_cast<double>(counts[term])
                              : 0.0;
      outputs.terms.push_back({.mean = mean, .targets = counts[term]});
      outputs.loss += mean;
    }
    return outputs;
  }

 private:
  // Of which masked words and the first token of each row are read.
  [[nodiscard]] ModelInput input_of(const Batch& batch, const MaskedWords& words,
                                    const std::optional<DropoutStream>& dropout) const {
    ModelInput input = make_model_input(batch, device_, dropout);
    if (compiles_shapes(device_)) return input;
    std::vector<int64_t> read = words.positions;
    for (int64_t row = 0; row < input.input_ids.size(0); ++row) read.push_back(row * batch.length);
    input.read_positions = read_positions(std::move(read), device_);
    return input;
  }
  // Undefined if no sample has a label.
  [[nodiscard]] static Tensor next_loss(const Tensor& logits, const Batch& batch) {
    if (count_known(batch.classes) == 0) return {};
    return summed_cross_entropy(logits.to(at::kFloat), batch.classes, batch, 0.0);
  }

  Model& model_;
  c10::Device device_;
  LossOptions options_;
};

}  // namespace

std::unique_ptr<Task> make_pretraining_task(Model& model, c10::Device device,
                                            const LossOptions& options) {
  return std::make_unique<Pretraining>(model, device, options);
}

std::unique_ptr<Metrics> make_pretraining_metrics() {
  return std::make_unique<PretrainingMetrics>();
}

}  // namespace finetune
