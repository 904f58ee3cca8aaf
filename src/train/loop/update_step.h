// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/loop/gradient_sum.h"
#include "train/save/saving.h"
#include "train/session/session_watch.h"
#include "train/session/training_run.h"

namespace finetune {

// The result of an update.
struct StepReport {
  double loss = 0.0;
  std::vector<double> measures = {};   // of Task::measures()
  std::vector<bool> is_measured = {};  // which of them had targets
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  int64_t tokens = 0;
  int64_t padded_tokens = 0;
  bool interrupted = false;  // discarded: a rank was asked to stop
  bool stop_came = false;    // a stop came after the last micro-batch: the update is complete
  bool applied = false;
  bool overflowed = false;                // float16: no update, and the loss scale is halved
  bool left_out = false;                  // skipped, because its samples led to a fault before
  bool is_half_applied = false;           // some weights were updated before the fault
  std::optional<std::string> fault = {};  // why the update was not applied
};

// Computes and applies one optimizer update at a time.
class UpdateStep {
 public:
  UpdateStep(TrainingRun& run, Saving& saving, SessionWatch& watch);

  // Allocates memory that lives as long as the run before the first activations: later it would be
  // scattered among the memory of the steps.
  void reserve_memory();
  // Runs the update at the run's position. After an exception weights and states are unchanged,
  // unless may_repeat() is false.
  [[nodiscard]] StepReport run();
  // After an exception of run(): whether the same update may be retried.
  [[nodiscard]] bool may_repeat() const;
  // Drops what a failed update left, which frees its memory; that of the gradients too, because on
  // a TPU they hold the failure.
  void clear() {
    run_.store().gradients().clear(/*keep_memory=*/false);
    sum_->clear();
  }
  // Call after the run's BatchSplit has changed.
  void split_changed();

 private:
  // Sums that optimizer_in_backward collects during a backward pass.
  struct Released {
    double squares = 0.0;  // of all norms
    double learning_rate = 0.0;
    int64_t updated = 0;  // number of parameters
  };

  [[nodiscard]] StepReport leave_out(StepReport report) const;
  void check_data(const Update& update, const Targets& targets);
  // The first pass of a task that has one. Returns false where a stop was requested. A collective.
  [[nodiscard]] bool couple(const Update& update, const std::vector<double>& scales);
  [[nodiscard]] TrainingPass pass_of(const Batch& batch, const std::vector<double>& scales) const;
  void add_micro_batches(const Update& update, const std::vector<double>& scales);
  void backward(const Batch& batch, const std::vector<double>& scales, std::span<double> figures);
  void apply(StepReport& report);
  [[nodiscard]] Tensor queued_figures() const;
  void apply_gradients(StepReport& report);
  void note_overflow(StepReport& report);
  void update_in_backward();
  [[nodiscard]] double loss_scale() const;

  TrainingRun& run_;
  Saving& saving_;
  SessionWatch& watch_;
  std::unique_ptr<GradientSum> sum_;
  SumKind kind_ = SumKind::kAlone;
  Released released_;
  std::vector<Tensor> queued_figures_;  // of micro-batches, on the device; not read yet
  int64_t without_target_ = 0;          // updates in a row, of this session
  bool was_looked_at_ = false;          // the first update of the session
  bool is_updating_ = false;            // weights or states may be half changed
};

}  // namespace finetune
