// SPDX-License-Identifier: MIT

#include <limits>
#include <map>
#include <span>

#include "finetune/base/error.h"
#include "task/metrics/class_counts.h"
#include "task/token_classification/entities.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

class TokenClassificationMetrics final : public Metrics {
 public:
  TokenClassificationMetrics(std::vector<std::string> labels, bool by_entity)
      : labels_(std::move(labels)), by_entity_(by_entity) {
    for (const std::string& label : labels_) tags_.emplace_back(label);
  }

  void add(const Batch& batch, const Outputs& outputs) override {
    if (batch.labels.empty()) return;
    FT_CHECK(outputs.logits.size(-1) <= static_cast<int64_t>(labels_.size()), "labels are named");
    const Tensor best = outputs.logits.argmax(-1).to(at::kCPU);
    const std::span<const int64_t> predicted(best.const_data_ptr<int64_t>(),
                                             static_cast<size_t>(best.numel()));
    const auto length = static_cast<size_t>(batch.length);
    for (size_t first = 0; first < batch.labels.size(); first += length) {
      add_row(predicted.subspan(first, length),
              std::span<const int64_t>(batch.labels).subspan(first, length));
    }
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> compute() const override {
    std::vector<std::pair<std::string, double>> result;
    const std::string prefix = by_entity_ ? "overall_" : "";
    Hits all;
    for (const auto& [type, hits] : types_) {
      all.hits += hits.hits;
      all.predicted += hits.predicted;
      all.there += hits.there;
      if (!by_entity_) continue;
      result.emplace_back(type + "_precision", hits.precision());
      result.emplace_back(type + "_recall", hits.recall());
      result.emplace_back(type + "_f1", hits.f1());
      result.emplace_back(type + "_number", static_cast<double>(hits.there));
    }
    const double none = std::numeric_limits<double>::quiet_NaN();
    result.emplace_back(prefix + "precision", tokens_ > 0 ? all.precision() : none);
    result.emplace_back(prefix + "recall", tokens_ > 0 ? all.recall() : none);
    result.emplace_back(prefix + "f1", tokens_ > 0 ? all.f1() : none);
    result.emplace_back(
        prefix + "accuracy",
        tokens_ > 0 ? static_cast<double>(right_) / static_cast<double>(tokens_) : none);
    return result;
  }

 private:
  void add_row(std::span<const int64_t> predicted, std::span<const int64_t> there) {
    for (size_t i = 0; i < there.size(); ++i) {
      if (there[i] == kIgnoredLabel) continue;
      const auto guess = static_cast<size_t>(predicted[i]);
      const auto truth = static_cast<size_t>(there[i]);
      ++tokens_;
      right_ += labels_.at(guess) == labels_.at(truth) ? 1 : 0;
      add_tags(tags_[guess], tags_[truth]);
    }
    static const Tag outside("O");
    add_tags(outside, outside);
  }

  // At most one entity ends before a tag, so equal entities end before the same tag.
  void add_tags(const Tag& predicted, const Tag& there) {
    const std::optional<Entity> guess = predicted_.next(predicted);
    const std::optional<Entity> truth = there_.next(there);
    if (guess) ++types_[guess->type].predicted;
    if (truth) ++types_[truth->type].there;
    if (guess && guess == truth) ++types_[guess->type].hits;
  }

  std::vector<std::string> labels_;
  bool by_entity_;
  std::vector<Tag> tags_;  // of the labels
  EntityFinder predicted_, there_;
  std::map<std::string, Hits> types_;
  int64_t tokens_ = 0;
  int64_t right_ = 0;
};

}  // namespace

std::unique_ptr<Metrics> make_token_classification_metrics(std::vector<std::string> labels,
                                                           bool by_entity) {
  return std::make_unique<TokenClassificationMetrics>(std::move(labels), by_entity);
}

}  // namespace finetune
