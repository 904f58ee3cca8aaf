// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/data/question_answering_dataset.h"
#include "finetune/task/answers.h"
#include "finetune/task/task.h"

namespace finetune {

// Metrics of one pass over evaluation data. Keeps sums, or what a sample needs at least (two
// numbers for a correlation, the best spans for an answer), never all logits.
class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  // Names without "eval_", in the order in which transformers' scripts report them. NaN where a
  // metric is not defined. Computed anew at each call.
  [[nodiscard]] virtual std::vector<std::pair<std::string, double>> compute() const = 0;
};

// Every name that the metrics of a task (config's spelling) may report, the first one being what
// transformers' script reports; empty for an unknown task. Entity types are not in it:
// "PER_f1" and the like come from return_entity_level_metrics.
[[nodiscard]] std::vector<std::string> metric_names(std::string_view task);

// accuracy: the share of the masked tokens that are the most probable ones.
[[nodiscard]] std::unique_ptr<Metrics> make_masked_lm_metrics();

// masked_lm_accuracy and next_sentence_accuracy as above, masked_lm_loss and next_sentence_loss,
// the means over all targets.
[[nodiscard]] std::unique_ptr<Metrics> make_pretraining_metrics();

// Values as scikit-learn's and SciPy's. Without a name:
// - one label: accuracy, f1 (of class 1 where there are two, else the mean over the classes that
//   occur), matthews_correlation;
//   roc_auc where it is asked for: of class 1 where there are two, else the mean over the classes,
//   each against the rest (scikit-learn's multi_class="ovr");
// - several labels (a logit above 0 is a yes): f1 over all yes and no (micro), accuracy (of whole
//   samples); roc_auc where it is asked for, the mean over the labels;
// - a number: mse, and for one output pearson, spearmanr and combined_score, their mean.
// `metric_names` are some of these, precision or recall (averaged as f1 is), or a task of GLUE for
// what run_glue reports there: "mrpc" is accuracy, f1 and combined_score. Throws Error(kConfig)
// for a name that the problem does not have.
[[nodiscard]] std::unique_ptr<Metrics> make_sequence_classification_metrics(
    ProblemType problem, const std::vector<std::string>& metric_names);

// accuracy
[[nodiscard]] std::unique_ptr<Metrics> make_multiple_choice_metrics();

// Of entities as seqeval finds them by default (conlleval's rules for B-, I-, E-, S- and O):
// precision, recall, f1, and accuracy over tokens. With `by_entity` as run_ner's
// return_entity_level_metrics: PER_precision, PER_recall, PER_f1, PER_number for each type in
// order, then overall_precision, overall_recall, overall_f1, overall_accuracy.
// `labels` are the names of the classes in order.
[[nodiscard]] std::unique_ptr<Metrics> make_token_classification_metrics(
    std::vector<std::string> labels, bool by_entity);

// exact_match and f1 of SQuAD 1, or with version_2_with_negative exact, f1, total, HasAns_*,
// NoAns_* and best_* of SQuAD 2, in percent. `data` was made with keep_questions; the batches'
// samples must be its windows in order. `take`, where it is set, gets each answer as soon as the
// question's last window was added.
[[nodiscard]] std::unique_ptr<Metrics> make_question_answering_metrics(
    std::shared_ptr<const QuestionAnsweringDataset> data, const AnswerOptions& options,
    std::function<void(const Answer&)> take = {});

}  // namespace finetune
