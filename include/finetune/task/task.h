// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/data/labels.h"
#include "finetune/kernels/dropout.h"
#include "finetune/model/model.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// What a model says of one batch in evaluation.
struct Outputs {
  // On the model's device, float32. mlm: [targets, V]; sequence_classification: [samples, labels];
  // multiple_choice: [samples, choices]; token_classification: [rows, length, labels];
  // question_answering: [rows, length, 2];
  // pretraining: [targets, V], undefined where no word is masked.
  Tensor logits;
  Tensor next_sentence_logits = {};  // pretraining: [rows, 2]
  // The most probable words, [targets]: of clm, and instead of `logits` of mlm and pretraining
  // where another process evaluated.
  Tensor best = {};
  double loss = 0.0;    // the batch's mean, as transformers computes it; 0 without targets
  int64_t targets = 0;  // 0: the batch has no labels, so no loss
  // Where the loss is a sum of several means: each with its targets, in the order of the terms.
  struct TermMean {
    double mean = 0.0;
    int64_t targets = 0;
  };
  std::vector<TermMean> terms = {};
};

// What a training step tells a task of the micro-batch at hand.
struct TrainingPass {
  DropoutStream dropout = {};
  // What each term's sum will be multiplied with before backward() is called (the loss scale over
  // the update's targets): some gradients are made in the forward pass. Empty: 1.
  std::vector<double> scales = {};

  [[nodiscard]] double scale(size_t term) const { return scales.empty() ? 1.0 : scales[term]; }
};

// The objective. A task returns terms: each is a loss sum whose denominator, the number of targets,
// is counted over all micro-batches and processes of an update before it is divided, so that
// accumulation equals one large batch. Masked language modelling has one term.
class Task {
 public:
  virtual ~Task() = default;

  [[nodiscard]] virtual int64_t terms() const = 0;
  // Targets of each term, counted on the host: no device is touched. With class weights a target
  // counts its weight, in units so small that sums are exact whatever their order.
  [[nodiscard]] virtual std::vector<int64_t> count_targets(const Batch& batch) const = 0;
  // The sum over the targets of each term's loss, a scalar each; undefined where a term has no
  // target in this batch.
  [[nodiscard]] virtual std::vector<Tensor> loss_sums(const Batch& batch,
                                                      const TrainingPass& pass) = 0;
  // Without dropout and gradients. A batch without targets is fine.
  [[nodiscard]] virtual Outputs evaluate(const Batch& batch) = 0;
};

struct LossOptions {
  // As transformers' LabelSmoother: over all classes, in evaluation too.
  double label_smoothing_factor = 0.0;
  // Of each class, above 0; empty: all alike. The loss is the weighted mean over all targets of an
  // update, as torch's CrossEntropyLoss(weight=...) has it for one batch.
  std::vector<double> class_weights = {};
};

// The model's input for a batch, moved to `device`; the mask is left out where nothing is padded,
// token types where all are 0.
[[nodiscard]] ModelInput make_model_input(const Batch& batch, c10::Device device,
                                          const std::optional<DropoutStream>& dropout);

}  // namespace finetune
