// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kEmbeddingYaml = R"(task: embedding
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines, JSON, CSV or TSV. A row has two texts that belong together, and may have texts
# that do not; or two texts with a score.
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
text_columns: [question, context]  # anchor, positive, negatives
max_seq_length: 128                # tokens of a text

loss_type: MultipleNegativesRankingLoss
# Each anchor is compared with the texts of all samples of an update, however few of them are
# computed at once: raise gradient_accumulation_steps for more.
batch_sampler: no_duplicates
)";

}  // namespace

const TaskKeys& embedding_keys() {
  static const TaskKeys keys = {
      .name = "embedding",
      .title = "Teaches a model to embed texts: those that belong together get similar vectors.",
      .yaml = kEmbeddingYaml,
      .keys = {"text_columns", "label_column", "loss_type", "loss_kwargs", "matryoshka_dims",
               "mini_batch_size", "prompts", "pooling_mode", "include_prompt", "dense",
               "normalize_embeddings", "batch_sampler", "train_file_sets",
               "multi_dataset_batch_sampler", "validation_split_percentage"},
      .metric_names = {"cosine_ndcg@10", "spearman_cosine", "pearson_cosine", "cosine_accuracy",
                       "cosine_accuracy@1", "cosine_accuracy@3", "cosine_accuracy@5",
                       "cosine_accuracy@10", "cosine_precision@1", "cosine_precision@3",
                       "cosine_precision@5", "cosine_precision@10", "cosine_recall@1",
                       "cosine_recall@3", "cosine_recall@5", "cosine_recall@10", "cosine_mrr@10",
                       "cosine_map@100"},
      .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

}  // namespace finetune
