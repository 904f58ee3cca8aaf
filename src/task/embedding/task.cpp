// SPDX-License-Identifier: MIT
#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "task/embedding/embedding.h"
#include "task/loss/coupled_loss.h"
#include "task/loss/head_task.h"
#include "task/loss/model_input.h"

namespace finetune {
namespace {

// Samples whose losses are differentiated at a time: their scores with all texts of an update are
// in memory.
constexpr int64_t kSamplesAtOnce = 256;

class EmbeddingTask final : public HeadTask {
 public:
  EmbeddingTask(Model& model, c10::Device device, EmbeddingTaskOptions options)
      : HeadTask(model, device), options_(std::move(options)) {}

  [[nodiscard]] bool has_first_pass() const override {
    return std::ranges::any_of(options_.sets,
                               [](const EmbeddingSet& set) { return set.loss->couples; });
  }

  [[nodiscard]] Tensor first_pass(const Batch& batch, const TrainingPass& pass) override {
    set_ = &options_.sets.at(static_cast<size_t>(batch.set));
    return with_labels(logits(batch, pass.dropout), batch);
  }

  void couple(const Tensor& results) override {
    is_whole_ = !results.defined();
    if (!is_whole_) couple_rows(results);
  }

  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    set_ = &options_.sets.at(static_cast<size_t>(batch.set));
    if (!has_first_pass()) return HeadTask::loss_sums(batch, pass);
    const Tensor vectors = logits(batch, pass.dropout);
    if (is_whole_) couple_rows(with_labels(vectors.detach(), batch));
    return {coupled_.sum_of(vectors, is_whole_ ? 0 : batch.first_position)};
  }

  [[nodiscard]] std::vector<int64_t> count_targets(const Batch& batch) const override {
    return {targets_of(options_.sets.at(static_cast<size_t>(batch.set)), batch)};
  }

  [[nodiscard]] Outputs evaluate(const Batch& batch) override {
    set_ = &options_.evaluated;
    return HeadTask::evaluate(batch);
  }

 protected:
  [[nodiscard]] int64_t targets(const Batch& batch) const override {
    return targets_of(*set_, batch);
  }

  [[nodiscard]] Tensor summed_loss(const Tensor& vectors, const Batch& batch) const override {
    const int64_t samples = batch.size();
    const Tensor labels =
        batch.values.empty() ? Tensor() : to_device(batch.values, vectors.device());
    return losses(vectors, samples, labels, 0, samples).sum();
  }

  void adjust(ModelInput& input, const Batch& batch) const override {
    if (set_->queries == 0 || set_->prompt_tokens.empty()) {
      return leave_out_of_pooling(set_->prompt_tokens, batch, device(), input);
    }
    std::vector<int64_t> counts;
    for (const int64_t sample : batch.samples) {
      counts.push_back(set_->prompt_tokens.at(sample < set_->queries ? 0 : 1));
    }
    leave_out_of_pooling(counts, batch, device(), input);
  }

 private:
  [[nodiscard]] static int64_t targets_of(const EmbeddingSet& set, const Batch& batch) {
    if (set.loss == nullptr) return 0;
    return set.loss->label != EmbeddingLoss::Label::kNone && batch.values.empty() ? 0
                                                                                  : batch.size();
  }
  [[nodiscard]] bool has_labels() const { return set_->loss->label != EmbeddingLoss::Label::kNone; }

  // [rows, D + 1], the label in the last column of each row of its sample; [rows, D] without
  // labels.
  [[nodiscard]] Tensor with_labels(const Tensor& vectors, const Batch& batch) {
    const Tensor rows = vectors.cpu();
    if (!has_labels()) return rows;
    const Tensor labels = to_device(batch.values, at::kCPU).repeat_interleave(set_->texts);
    return at::cat({rows, labels.unsqueeze(1)}, 1);
  }

  void couple_rows(const Tensor& results) {
    const int64_t samples = results.size(0) / set_->texts;
    const int64_t size = results.size(1) - (has_labels() ? 1 : 0);
    Tensor labels;
    if (has_labels()) labels = results.select(1, size).view({samples, set_->texts}).select(1, 0);
    coupled_.couple(results.narrow(1, 0, size).contiguous(), samples,
                    set_->loss->by_sample ? kSamplesAtOnce : samples,
                    [&](const Tensor& rows, int64_t first, int64_t count) {
                      return losses(rows, samples, labels, first, count);
                    });
  }

  [[nodiscard]] Tensor losses(const Tensor& rows, int64_t samples, const Tensor& labels,
                              int64_t first, int64_t count) const {
    return matryoshka(*set_->loss, options_.matryoshka_dims,
                      rows.view({samples, rows.size(0) / samples, rows.size(1)}), labels, first,
                      count, set_->args);
  }

  EmbeddingTaskOptions options_;
  const EmbeddingSet* set_ = nullptr;  // of the batch at hand
  CoupledLoss coupled_;
  bool is_whole_ = false;  // the next batch is the whole update
};

}  // namespace

std::unique_ptr<Task> make_embedding_task(Model& model, c10::Device device,
                                          const EmbeddingTaskOptions& options) {
  return std::make_unique<EmbeddingTask>(model, device, options);
}

}  // namespace finetune
