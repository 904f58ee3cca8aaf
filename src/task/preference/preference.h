// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/task/metrics.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Training on preferences: pairs of a chosen and a rejected answer, whose log probabilities are
// compared. A batch has two rows for each pair, the chosen one first.

const TaskKeys& dpo_keys();
const TaskDescriptor& dpo_descriptor();
const TaskKeys& orpo_keys();
const TaskDescriptor& orpo_descriptor();

const TaskKeys& kto_keys();
const TaskDescriptor& kto_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_kto_setup(const SetupContext& context);
[[nodiscard]] std::unique_ptr<TaskSetup> make_dpo_setup(const SetupContext& context);
[[nodiscard]] std::unique_ptr<TaskSetup> make_orpo_setup(const SetupContext& context);

// The losses of DPO under TRL's names, of the log ratios to the reference.
enum class DpoLoss {
  kSigmoid,      // Rafailov et al. 2023, eq. 7
  kHinge,        // Zhao et al. 2023 (SLiC), with the reward as score
  kIpo,          // Azar et al. 2023, eq. 17, of the mean log ratio of a token
  kSigmoidNorm,  // kSigmoid of the mean log ratio of a token
  kRobust,       // Chowdhury et al. 2024 (rDPO), eq. 10
  kSimpo,        // Meng et al. 2024 (SimPO), eq. 6, which has no reference
};

// Whether a loss compares with a reference.
[[nodiscard]] inline bool has_reference(DpoLoss loss) { return loss != DpoLoss::kSimpo; }

struct DpoOptions {
  DpoLoss loss = DpoLoss::kSigmoid;
  double beta = 0.1;
  double label_smoothing = 0.0;  // of kRobust: the share of wrong preferences
  double simpo_gamma = 0.5;      // of kSimpo: the margin that rewards should have
  bool drops = false;            // dropout is on
  // The reference is computed with each batch, without the adapter; false: Batch::values has the
  // log probabilities of both rows, [pairs, 2].
  bool computes_reference = false;
};

struct OrpoOptions {
  double beta = 0.1;  // the paper's lambda
  bool drops = false;
};

// Answers that are desirable or not, of which neither has a partner (Ethayarajh et al. 2024,
// "KTO").
struct KtoOptions {
  double beta = 0.1;
  double desirable_weight = 1.0;
  double undesirable_weight = 1.0;
  bool drops = false;
  // The KL divergence from the reference is estimated and taken off (eqs. 7 and 8); false: APO's
  // loss without it (apo_zero_unpaired: D'Oosterlinck et al. 2024, eq. 7).
  bool estimates_divergence = true;
  bool computes_reference = false;  // as DpoOptions
};

// Log probabilities of the rows of pairs: sums over their answers' tokens, and numbers of tokens.
struct PairScores {
  Tensor log_probs;  // [pairs, 2]
  Tensor tokens;     // [pairs, 2] float32
};

// Rewards of both rows, [pairs, 2]: beta times the log ratio to the reference; of kSimpo, times the
// mean log probability of a token. `reference` [pairs, 2]: the log probabilities of the reference.
[[nodiscard]] Tensor dpo_rewards(const PairScores& scores, const Tensor& reference,
                                 const DpoOptions& options);
// The loss of each pair, [pairs].
[[nodiscard]] Tensor dpo_losses(const PairScores& scores, const Tensor& reference,
                                const DpoOptions& options);
// The log odds of the chosen answer over the rejected one, [pairs] (Hong et al. 2024, "ORPO", eqs.
// 4 and 7), of the mean log probability of a token.
[[nodiscard]] Tensor log_odds(const PairScores& scores);

// `model` must outlive the tasks. One term, over pairs. Batch::labels are those of the answers.
[[nodiscard]] std::unique_ptr<Task> make_dpo_task(Model& model, c10::Device device,
                                                  const DpoOptions& options);
// Two terms: the cross entropy of the chosen rows, prompts included, over their tokens, and the
// log sigmoid of the log odds, over pairs. Batch::labels are those of the whole chosen rows and of
// the rejected answers, Batch::values the lengths of the prompts [pairs].
[[nodiscard]] std::unique_ptr<Task> make_orpo_task(Model& model, c10::Device device,
                                                   const OrpoOptions& options);

// One term, over samples of two rows: a prompt with its answer, and with the answer of another
// sample, whose log ratio to the reference, averaged over the update, is the divergence. Therefore
// the task has two passes. Batch::classes are 1 for a desirable answer, Batch::values the
// reference's log probabilities of both rows, unless it is computed with each batch.
[[nodiscard]] std::unique_ptr<Task> make_kto_task(Model& model, c10::Device device,
                                                  const KtoOptions& options);

// Means of Task::measures() and their differences, which are the task's metrics.
[[nodiscard]] std::unique_ptr<Metrics> make_measure_metrics(
    const TaskKeys& keys, std::vector<MeasureDifference> differences = {});
// rewards/margins of answers that are not in pairs.
[[nodiscard]] std::vector<MeasureDifference> kto_differences();

}  // namespace finetune
