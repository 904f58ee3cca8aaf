// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

#include "finetune/task/prediction_files.h"

namespace finetune {

// Writes predict_results.txt: "index<TAB>prediction" and a line for each sample. Subclasses format
// the prediction.
class ResultLines : public PredictionFiles {
 public:
  void add(const Batch& /*batch*/, const Outputs& outputs) final {
    const Tensor logits = outputs.logits.to(at::kFloat).cpu().contiguous();  // [samples, outputs]
    const std::span<const float> all(logits.const_data_ptr<float>(),
                                     static_cast<size_t>(logits.numel()));
    const auto columns = static_cast<size_t>(logits.size(-1));
    for (size_t begin = 0; begin < all.size(); begin += columns) {
      text_ += std::to_string(samples_++) + "\t" + prediction(all.subspan(begin, columns)) + "\n";
    }
  }

  void write(FileSystem& files, const std::string& output_dir) const final {
    files.make_directories(output_dir);
    files.write_atomically(join_path(output_dir, "predict_results.txt"), text_);
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

 private:
  [[nodiscard]] virtual std::string prediction(std::span<const float> scores) const = 0;

  std::string text_ = "index\tprediction\n";
  int64_t samples_ = 0;
};

}  // namespace finetune
