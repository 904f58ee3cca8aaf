// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/model/model.h"

// Losses of a model with a head over the vocabulary, at N positions [N] int64 (b * T + t) with
// labels [N] int64. None materialises all logits [N, V].
namespace finetune {

struct WordsLossOptions {
  double label_smoothing_factor = 0.0;
  // Factor of the sum in backward(); see ChunkedCrossEntropyOptions.
  double gradient_scale = 1.0;
};
// The summed cross entropy, a scalar.
[[nodiscard]] Tensor words_loss(Model& model, const ModelInput& input, const Tensor& positions,
                                const Tensor& labels, const WordsLossOptions& options = {});
// The same of what encode(input) returned.
[[nodiscard]] Tensor words_loss(Model& model, const ModelInput& input, const Encoded& encoded,
                                const Tensor& positions, const Tensor& labels,
                                const WordsLossOptions& options);

// The log probability of each label: [N] float32, for losses that compare sequences. backward()
// takes any gradient; the logits are computed again for it.
[[nodiscard]] Tensor token_log_probs(Model& model, const ModelInput& input, const Tensor& positions,
                                     const Tensor& labels);

// Evaluation results of N positions.
struct WordScores {
  double loss_sum = 0.0;     // cross entropy
  double entropy_sum = 0.0;  // of the predicted distributions, in nats; 0 unless asked for
  Tensor best;               // [N] int64, the most probable ids
};
struct WordScoreOptions {
  double label_smoothing_factor = 0.0;
  bool entropy = false;
};
[[nodiscard]] WordScores score_words(Model& model, const ModelInput& input, const Tensor& positions,
                                     const Tensor& labels, const WordScoreOptions& options = {});

}  // namespace finetune
