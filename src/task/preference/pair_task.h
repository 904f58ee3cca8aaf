// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/task/task.h"
#include "task/preference/preference.h"

namespace finetune {

// What tasks of preferences have in common: the log probabilities of a batch's labels, by row.
class PairTask : public Task {
 public:
  // `model` must outlive the task, `keys` name its measures.
  PairTask(const TaskKeys& keys, Model& model, c10::Device device, bool drops)
      : keys_(keys), model_(model), device_(device), drops_(drops) {}

  [[nodiscard]] std::vector<std::string> measures() const override {
    return {keys_.metric_names.begin(), keys_.metric_names.end()};
  }
  std::vector<Tensor> loss_sums(const Batch& batch, const TrainingPass& pass) override {
    return sums_of(batch, pass.dropout);
  }
  Outputs evaluate(const Batch& batch) final;
  [[nodiscard]] Tensor reference(const Batch& batch, bool without_adapter) override;

 protected:
  // The sums of terms and measures, as loss_sums() returns them.
  [[nodiscard]] virtual std::vector<Tensor> sums_of(
      const Batch& batch, const std::optional<DropoutStream>& dropout) = 0;

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

  const TaskKeys& keys_;
  Model& model_;
  c10::Device device_;
  bool drops_;
};

}  // namespace finetune
