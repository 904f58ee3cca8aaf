// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kQuestionAnsweringYaml = R"(task: question_answering
output_dir: run                    # checkpoints, results and the finished model

# Data: SQuAD's JSON, or rows with id, question, context and answers.
train_file: train.json
validation_file: validation.json
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
max_seq_length: 384                # tokens of a question with a window of its context
doc_stride: 128                    # tokens that neighbouring windows share
# version_2_with_negative: true    # where some questions have no answer
)";

}  // namespace

const TaskKeys& question_answering_keys() {
  static const TaskKeys keys = {
      .name = "question_answering",
      .title = "Teaches a model to find the answer in a text.",
      .yaml = kQuestionAnsweringYaml,
      .keys = {"label_column", "context_column", "do_predict", "test_file",
               "validation_split_percentage", "doc_stride", "max_answer_length", "n_best_size",
               "version_2_with_negative", "null_score_diff_threshold"},
      .metric_names = {"exact_match", "f1", "exact", "total", "HasAns_exact", "HasAns_f1",
                       "HasAns_total", "NoAns_exact", "NoAns_f1", "NoAns_total", "best_exact",
                       "best_exact_thresh", "best_f1", "best_f1_thresh"},
      .row_is_sample = false,
      .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

}  // namespace finetune
