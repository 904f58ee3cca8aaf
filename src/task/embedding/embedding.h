// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/data/retrieval_files.h"
#include "finetune/task/metrics.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"
#include "task/embedding/losses.h"

namespace finetune {

// Trains a model whose vectors of texts are compared, as sentence-transformers does.

const TaskKeys& embedding_keys();
const TaskDescriptor& embedding_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_embedding_setup(const SetupContext& context);

// What is learned from the samples of one dataset.
struct EmbeddingSet {
  const EmbeddingLoss* loss = nullptr;  // null: none, in evaluation
  EmbeddingLossArgs args = {};
  int64_t texts = 0;  // of a sample
  // By text of a sample: the first tokens, special ones included, that are not pooled.
  std::vector<int64_t> prompt_tokens = {};
  // Of a corpus after its queries: the first samples, which are queries. Then `prompt_tokens` has
  // the numbers of a query and of a document.
  int64_t queries = 0;
};

struct EmbeddingTaskOptions {
  std::vector<EmbeddingSet> sets = {};  // by Batch::set
  EmbeddingSet evaluated = {};
  std::vector<int64_t> matryoshka_dims = {};
};

// `model` must outlive the task. One term: the loss of each sample of the update. Outputs::logits
// are the vectors [rows, D].
[[nodiscard]] std::unique_ptr<Task> make_embedding_task(Model& model, c10::Device device,
                                                        const EmbeddingTaskOptions& options);

// Of samples with a score: pearson_cosine and spearman_cosine (EmbeddingSimilarityEvaluator). Of
// others: with negatives cosine_accuracy (TripletEvaluator), and with the first texts as queries
// and all others as the corpus cosine_accuracy@k, _precision@k, _recall@k, _ndcg@10, _mrr@10 and
// _map@100 (InformationRetrievalEvaluator). Texts with the same tokens are one.
[[nodiscard]] std::unique_ptr<Metrics> make_embedding_metrics(int64_t texts, bool has_score);

// The same over a corpus: the samples are the task's queries and then all documents.
[[nodiscard]] std::unique_ptr<Metrics> make_corpus_metrics(const RetrievalTask& task);

[[nodiscard]] std::unique_ptr<Predictor> make_embedder(const std::string& folder,
                                                       const PredictOptions& options);

}  // namespace finetune
