// SPDX-License-Identifier: MIT
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

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
    Tensor labels;
    if (set_->guide) {
      labels = guide_vectors(batch).view({samples, set_->texts, -1});
    } else if (!batch.values.empty()) {
      labels = to_device(batch.values, vectors.device());
    }
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
    return reads_label(*set.loss) && batch.values.empty() ? 0 : batch.size();
  }
  // [rows, G], float32.
  [[nodiscard]] Tensor guide_vectors(const Batch& batch) const {
    const c10::NoGradGuard no_grad;
    const ModelInput input = make_model_input(batch, device(), std::nullopt);
    return real_rows(set_->guide->logits(input), batch).to(at::kFloat);
  }

  // What the loss needs of all samples: [rows, D + 1], the label in the last column of each row of
  // its sample; [rows, D + G] with the vectors of a guide; or [rows, D].
  [[nodiscard]] Tensor with_labels(const Tensor& vectors, const Batch& batch) {
    const Tensor rows = vectors.cpu();
    dims_ = rows.size(1);
    if (set_->guide) return at::cat({rows, guide_vectors(batch).cpu()}, 1);
    if (!reads_label(*set_->loss)) return rows;
    const Tensor labels = to_device(batch.values, at::kCPU).repeat_interleave(set_->texts);
    return at::cat({rows, labels.unsqueeze(1)}, 1);
  }

  void couple_rows(const Tensor& results) {
    const int64_t samples = results.size(0) / set_->texts;
    Tensor labels;
    if (set_->guide) {
      labels = results.slice(1, dims_).contiguous().view({samples, set_->texts, -1});
    } else if (reads_label(*set_->loss)) {
      labels = results.select(1, dims_).view({samples, set_->texts}).select(1, 0);
    }
    coupled_.couple(results.narrow(1, 0, dims_).contiguous(), samples,
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
  int64_t dims_ = 0;                   // of a vector
  CoupledLoss coupled_;
  bool is_whole_ = false;  // the next batch is the whole update
};

}  // namespace

std::unique_ptr<Task> make_embedding_task(Model& model, c10::Device device,
                                          const EmbeddingTaskOptions& options) {
  return std::make_unique<EmbeddingTask>(model, device, options);
}

}  // namespace finetune
