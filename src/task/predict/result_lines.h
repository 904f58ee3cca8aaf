// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "finetune/base/model_files.h"
#include "finetune/task/prediction_files.h"
#include "task/predict/worst_samples.h"

namespace finetune {

// predict_results.txt: "index<TAB>prediction" and a line for each sample, of which the heir writes
// the prediction. The samples whose labels are known are rated for worst_samples.json.
class ResultLines : public PredictionFiles {
 public:
  explicit ResultLines(std::string measure) : worst_(std::move(measure)) {}

  void add(const Batch& batch, const Outputs& outputs) final {
    const Tensor logits = outputs.logits.to(at::kFloat).cpu().contiguous();  // [samples, outputs]
    const std::span<const float> all(logits.const_data_ptr<float>(),
                                     static_cast<size_t>(logits.numel()));
    const auto columns = static_cast<size_t>(logits.size(-1));
    for (size_t row = 0; row * columns < all.size(); ++row) {
      const auto scores = all.subspan(row * columns, columns);
      text_ += std::to_string(samples_) + "\t" + prediction(scores) + "\n";
      rate(batch, row, scores, samples_++);
    }
  }

  void write(FileSystem& files, const std::string& output_dir) const final {
    files.make_directories(output_dir);
    files.write_atomically(join_path(output_dir, kResultLinesFile), text_);
    worst_.write(files, output_dir, "test");
  }

 protected:
  // Returns the first of equal maxima, like numpy's argmax.
  [[nodiscard]] static size_t best_of(std::span<const float> scores) {
    size_t best = 0;
    for (size_t i = 1; i < scores.size(); ++i) {
      if (scores[i] > scores[best]) best = i;
    }
    return best;
  }

  // log softmax(scores)[index]
  [[nodiscard]] static double log_probability(std::span<const float> scores, size_t index) {
    double most = -std::numeric_limits<double>::infinity();
    for (const float score : scores) most = std::max(most, static_cast<double>(score));
    double sum = 0.0;
    for (const float score : scores) sum += std::exp(static_cast<double>(score) - most);
    return static_cast<double>(scores[index]) - most - std::log(sum);
  }

  // Where the sample has one class of several.
  template <class Name>
  void rate_class(int64_t sample, std::span<const float> scores, size_t target, const Name& name) {
    const double log_share = log_probability(scores, target);
    worst_.add(sample, std::exp(log_share), {.first = -log_share}, [&]() -> WorstSamples::Json {
      const size_t best = best_of(scores);
      return {{"label", name(target)},
              {"predicted", name(best)},
              {"predicted_score", std::exp(log_probability(scores, best))}};
    });
  }

  [[nodiscard]] WorstSamples& worst() { return worst_; }

 private:
  [[nodiscard]] virtual std::string prediction(std::span<const float> scores) const = 0;
  // Adds sample number `sample`, the batch's sample `row`, to worst() if its labels are known.
  virtual void rate(const Batch& batch, size_t row, std::span<const float> scores,
                    int64_t sample) = 0;

  std::string text_ = "index\tprediction\n";
  int64_t samples_ = 0;
  WorstSamples worst_;
};

}  // namespace finetune
