// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/task/metrics.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Trains a model that scores documents for a query, as sentence-transformers' CrossEncoder with one
// label. A sample is a query with one or more documents.

const TaskKeys& reranker_keys();
const TaskDescriptor& reranker_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_reranker_setup(const SetupContext& context);

// Arguments of a loss, with the defaults of sentence-transformers 6.2.
struct RerankerLossArgs {
  double pos_weight = 1.0;
  double sigma = 1.0;
  double scale = 10.0;
  // Documents of other samples for each query; nullopt: all.
  std::optional<int64_t> num_negatives = 4;
  std::string weighting_scheme = "NDCGLoss2PPScheme";
};

// One of sentence-transformers' losses of cross encoders.
struct RerankerLoss {
  std::string_view name;
  bool takes_lists;   // at least two documents of a query
  bool takes_labels;  // otherwise the first document of a sample is the right one
  std::vector<std::string_view> arguments;
  // What the sum is divided by, from the labels [S, K] of a batch.
  int64_t (*targets)(const std::vector<float>& labels, int64_t documents);
  // The sum, from logits and labels [S, K].
  Tensor (*sum)(const Tensor& logits, const Tensor& labels, const RerankerLossArgs& args);
};

// Returns the loss of this value of `loss_type`; nullptr for any other.
[[nodiscard]] const RerankerLoss* find_reranker_loss(std::string_view loss_type);
[[nodiscard]] std::vector<std::string> reranker_loss_names();

// Reads loss_kwargs (an object, or empty). Throws Error(kConfig) without the key's location.
[[nodiscard]] RerankerLossArgs parse_reranker_args(const RerankerLoss& loss,
                                                   const std::string& text);

// `model` must outlive the task. One term. A batch without labels has the first document of each
// sample as the relevant one. Outputs::logits are scores [samples, documents].
[[nodiscard]] std::unique_ptr<Task> make_reranker_task(Model& model, c10::Device device,
                                                       const RerankerLoss& loss,
                                                       const RerankerLossArgs& args);

// Of several documents: map, mrr@10 and ndcg@10 (CrossEncoderRerankingEvaluator), where labels
// above 0 are relevant. Of one: pearson and spearman (CrossEncoderCorrelationEvaluator).
[[nodiscard]] std::unique_ptr<Metrics> make_reranker_metrics(bool has_lists);

[[nodiscard]] std::unique_ptr<Predictor> make_reranker(const std::string& folder,
                                                       const PredictOptions& options);

}  // namespace finetune
