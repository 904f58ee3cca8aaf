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
  int64_t texts = 0;                  // of a sample
  std::shared_ptr<Model> guide = {};  // of a loss that has one
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

// What is evaluated.
struct EvaluatedTexts {
  int64_t texts = 0;  // of a sample
  bool has_score = false;
  // If the samples are queries, and then all documents of a corpus.
  std::shared_ptr<const RetrievalTask> retrieval = {};
  std::shared_ptr<const Dataset> data = {};
  std::vector<int64_t> dims = {};        // to which vectors are cut, too
  const Tokenizer* tokenizer = nullptr;  // outlives the results
};

// Of samples with a score: pearson_cosine and spearman_cosine (EmbeddingSimilarityEvaluator). Of
// others: with negatives cosine_accuracy (TripletEvaluator), and with the first texts as queries
// and all others as the corpus cosine_accuracy@k, _precision@k, _recall@k, _ndcg@10, _mrr@10 and
// _map@100 (InformationRetrievalEvaluator); texts with the same tokens are one. Of a corpus the
// latter. Of the first N dimensions dim_N_spearman_cosine or dim_N_cosine_ndcg@10. The files are
// the queries whose nearest text is wrong.
[[nodiscard]] TaskSetup::Results make_embedding_results(const EvaluatedTexts& texts);

[[nodiscard]] std::unique_ptr<Predictor> make_embedder(const std::string& folder,
                                                       const PredictOptions& options);

}  // namespace finetune
