// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kRerankerYaml = R"(task: reranker
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines, JSON, CSV or TSV. A row has a query and a document with a label; or a query, the
# right document and wrong ones; or a query, a list of documents and a list of labels.
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
text_columns: [query, positive, negative]
max_seq_length: 256                # tokens of a query with a document

loss_type: BinaryCrossEntropyLoss
)";

}  // namespace

const TaskKeys& reranker_keys() {
  static const TaskKeys keys = {.name = "reranker",
                                .title = "Teaches a model to score documents for a query.",
                                .yaml = kRerankerYaml,
                                .keys = {"text_columns", "label_column", "loss_type", "loss_kwargs",
                                         "validation_split_percentage"},
                                .metric_names = {"ndcg@10", "mrr@10", "map", "spearman", "pearson"},
                                .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

}  // namespace finetune
