// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kPretrainingData = R"(task: pretraining
output_dir: run                    # checkpoints, results and the finished model

# Data: plain text in UTF-8, an empty line between documents; or JSON lines, CSV or TSV with a
# document in each row; or the TFRecord shards that `finetune prepare` makes of these.
train_file: train.txt
validation_file: validation.txt
max_seq_length: 128                # tokens of an example
mlm_probability: 0.15
use_nsp: true                      # pairs: does the second segment follow the first?
dupe_factor: 10                    # how often an epoch goes through the documents
# prepare_output_dir: ./shards     # for `finetune prepare`
# num_shards: 16
)";

}  // namespace

const TaskKeys& pretraining_keys() {
  static const std::string yaml = with_fresh_model(
      kPretrainingData, "bert                   # or big_bird; others with use_nsp: false");
  static const TaskKeys keys = {
      .name = "pretraining",
      .title = "Pretrains a model from scratch on your own documents, as BERT was.",
      .yaml = yaml,
      .trains_from_scratch = true,
      .keys = {"line_by_line", "mlm_probability", "whole_word_mask", "use_nsp", "dupe_factor",
               "short_seq_prob", "max_predictions_per_seq", "sentence_delimiters",
               "prepare_output_dir", "num_shards"},
      .metric_names = {"masked_lm_accuracy", "next_sentence_accuracy", "masked_lm_loss",
                       "next_sentence_loss", "accuracy"},
      .row_is_sample = false,
      .samples_fill_length = true};
  return keys;
}

}  // namespace finetune
