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

// A model's outputs for one batch in evaluation.
struct Outputs {
  // On the model's device, float32. mlm: [targets, V]; sequence_classification: [samples, labels];
  // multiple_choice: [samples, choices]; token_classification: [rows, length, labels];
  // question_answering: [rows, length, 2];
  // pretraining: [targets, V], undefined if no word is masked.
  Tensor logits;
  Tensor next_sentence_logits = {};  // pretraining: [rows, 2]
  // The most probable ids, [targets]: for clm; for mlm and pretraining, instead of `logits`, if
  // another rank evaluated the batch.
  Tensor best = {};
  double loss = 0.0;     // the batch's mean, as in transformers; 0 without targets
  int64_t targets = 0;   // 0: the batch has no labels, so no loss
  double entropy = 0.0;  // mean over targets of the predictions' entropy, where it is measured
  // If the loss is a sum of several means: each mean with its number of targets, in the order of
  // the terms.
  struct TermMean {
    double mean = 0.0;
    int64_t targets = 0;
  };
  std::vector<TermMean> terms = {};
  std::vector<TermMean> measures = {};  // those of Task::measures()
};

// What the training step passes to a task with a micro-batch.
struct TrainingPass {
  DropoutStream dropout = {};
  // Factors by which each term's sum will be multiplied before backward() is called (the loss scale
  // over the update's targets), because some gradients are computed in the forward pass. Empty: 1.
  std::vector<double> scales = {};

  [[nodiscard]] double scale(size_t term) const { return scales.empty() ? 1.0 : scales[term]; }
};

// A measure whose value is the mean of one measure less that of another.
struct MeasureDifference {
  std::string name, first, second;
};

// Names and means of measures; NaN: without a target.
using MeasureMeans = std::vector<std::pair<std::string, double>>;

// Adds the differences, NaN where one of both is.
void add_differences(const std::vector<MeasureDifference>& differences, MeasureMeans& means);

// The training objective: a list of terms. Each is a sum of losses whose denominator, the number of
// targets, is counted over all micro-batches and ranks of an update before the division, so that
// gradient accumulation equals one large batch. Masked language modelling has one term.
class Task {
 public:
  virtual ~Task() = default;

  [[nodiscard]] virtual int64_t terms() const = 0;
  // Names of further terms, which follow those of the loss: their means over an update are logged
  // with the loss and not learned.
  [[nodiscard]] virtual std::vector<std::string> measures() const { return {}; }
  // Logged after them.
  [[nodiscard]] virtual std::vector<MeasureDifference> measure_differences() const { return {}; }
  // Counts the targets of each term on the host, without touching a device. With class weights a
  // target counts as its weight in fixed-point units, so that sums are exact in any order.
  [[nodiscard]] virtual std::vector<int64_t> count_targets(const Batch& batch) const = 0;
  // Returns each term's sum of losses over its targets, as scalars; undefined for a term without a
  // target in this batch. The sums of measures() have no gradient.
  [[nodiscard]] virtual std::vector<Tensor> loss_sums(const Batch& batch,
                                                      const TrainingPass& pass) = 0;
  // A loss that couples the samples of an update, such as a contrastive one, has no gradient before
  // all of them are known. Its task has two passes (GradCache: Gao et al. 2021, "Scaling Deep
  // Contrastive Learning Batch Size under Memory Limited Setup"): first_pass() of each micro-batch,
  // couple() with the results of all, then loss_sums() of each micro-batch. Its result then does
  // not depend on how the update is cut, nor on the number of ranks.
  [[nodiscard]] virtual bool has_first_pass() const { return false; }
  // Returns [rows, D] float32, on any device. Called without a tape; the dropout is that of
  // loss_sums() for the same batch.
  [[nodiscard]] virtual Tensor first_pass(const Batch& batch, const TrainingPass& pass);
  // Receives the results of all ranks [N, D], on the CPU: row r of a batch is row
  // Batch::first_position + r. Undefined: the next batch is the whole update, and there was no
  // first pass.
  virtual void couple(const Tensor& results);
  // A loss that compares the model with the one that the run started from, the reference (DPO:
  // Rafailov et al. 2023, eq. 7), reads what the latter says of each sample in Batch::values. This
  // computes it with the task's own model: [samples, values] float32 on the CPU, without dropout
  // and gradients. `without_adapter`: of its base.
  [[nodiscard]] virtual Tensor reference(const Batch& batch, bool without_adapter);
  // Evaluates without dropout and gradients. A batch may have no targets.
  [[nodiscard]] virtual Outputs evaluate(const Batch& batch) = 0;
};

struct LossOptions {
  // As in transformers' LabelSmoother: over all classes, in evaluation too.
  double label_smoothing_factor = 0.0;
  // Positive weights by class; empty: equal weights. The loss is the weighted mean over all targets
  // of an update, like torch's CrossEntropyLoss(weight=...) over a single batch.
  std::vector<double> class_weights = {};
  double temperature = 1.0;       // divides the logits of evaluation: a calibrated classifier's
  bool measures_entropy = false;  // clm: evaluate() returns Outputs::entropy
};

// Returns the model's input for a batch, moved to `device`; without a mask if nothing is padded,
// without token types if all are 0. Where the device compiles operators for shapes, the last row is
// repeated until the batch is full: real_rows() leaves those out of the outputs. `is_causal`:
// tokens after a row's last label are not computed, because nothing reads them.
[[nodiscard]] ModelInput make_model_input(const Batch& batch, c10::Device device,
                                          const std::optional<DropoutStream>& dropout,
                                          bool is_causal = false);
[[nodiscard]] Tensor real_rows(const Tensor& outputs, const Batch& batch);

}  // namespace finetune
