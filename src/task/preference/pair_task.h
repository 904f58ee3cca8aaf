// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/model/model.h"
#include "finetune/task/task.h"
#include "task/preference/preference.h"

namespace finetune {

// What tasks of preferences have in common: the log probabilities of a batch's labels, by row.
class PairTask : public Task {
 public:
  // `model` must outlive the task.
  PairTask(Model& model, c10::Device device, bool drops)
      : model_(model), device_(device), drops_(drops) {}

  [[nodiscard]] Tensor reference(const Batch& batch, bool without_adapter) override;

 protected:
  struct BatchScores {
    PairScores answers;
    Tensor chosen;  // [pairs]: of all labels of the chosen rows
  };
  // Requires: a batch of pairs.
  [[nodiscard]] BatchScores scores_of(const Batch& batch,
                                      const std::optional<DropoutStream>& dropout);
  // The sums over the answers of all rows, [rows].
  [[nodiscard]] Tensor log_probs_of(const Batch& batch,
                                    const std::optional<DropoutStream>& dropout);

  // The position of the first label of the answer of each pair.
  [[nodiscard]] virtual int64_t first_label(const Batch& /*batch*/, int64_t /*pair*/) const {
    return 0;
  }

  [[nodiscard]] c10::Device device() const { return device_; }

  // Names the samples whose loss is not finite, where reading it does not wait for a device.
  static void report_faults(const Tensor& losses, const Batch& batch);

 private:
  struct RowScores;
  [[nodiscard]] RowScores rows_of(const Batch& batch, const ModelInput& input);
  [[nodiscard]] ModelInput input_of(const Batch& batch,
                                    const std::optional<DropoutStream>& dropout) const;

  Model& model_;
  c10::Device device_;
  bool drops_;
};

// A mean with its targets, 0 without any.
[[nodiscard]] Outputs::TermMean mean_of(const Tensor& sum, int64_t targets);

}  // namespace finetune
