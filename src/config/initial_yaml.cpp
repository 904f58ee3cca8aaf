// SPDX-License-Identifier: MIT
#include <map>

#include "config/words.h"
#include "finetune/base/error.h"
#include "finetune/config/dump.h"

namespace finetune {
namespace {

constexpr std::string_view kStart =
    "# Start it, and start it again after any interruption, with: finetune train THIS_FILE\n"
    "# All keys and their defaults: finetune config defaults\n"
    "# Relative paths start from the folder of this file.\n\n";

constexpr std::string_view kMaskedLm = R"(task: mlm
output_dir: run                    # checkpoints, results and the finished model

# Data: plain text in UTF-8. Without validation_file, 5 % of the training text is kept for it.
train_file: train.txt
# validation_file: validation.txt
max_seq_length: 128                # tokens of a sample
line_by_line: false                # true: every line is a sample of its own
mlm_probability: 0.15

# A fresh model. Its tokenizer is made once, before:
#   finetune tokenizer train --type byte_level_bpe --vocab_size 8000 --output tokenizer train.txt
model_type: roberta                # or bert, xlm-roberta, big_bird
tokenizer_name: ./tokenizer
config_overrides: {hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 1024}
# To go on with a trained model instead, replace these three by:
# model_name_or_path: ./my-model
)";

constexpr std::string_view kPretraining = R"(task: pretraining
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

# A fresh model. Its tokenizer is made once, before:
#   finetune tokenizer train --type byte_level_bpe --vocab_size 8000 --output tokenizer train.txt
model_type: bert                   # or big_bird; others with use_nsp: false
tokenizer_name: ./tokenizer
config_overrides: {hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 1024}
# To go on with a trained model instead, replace these three by:
# model_name_or_path: ./my-model
)";

constexpr std::string_view kPretrainedModel = R"(
# The model to start from: a folder as transformers saves it, or a name in the local cache.
model_name_or_path: ./my-model
)";

constexpr std::string_view kSequenceClassification = R"(task: sequence_classification
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines, JSON, CSV or TSV. Whole numbers and words are classes, numbers with a fraction
# make it a regression, lists several labels at once.
train_file: train.jsonl
validation_file: validation.jsonl
# test_file: test.jsonl            # with do_predict: true
text_column: sentence1
text_pair_column: sentence2        # leave it out where there is one text
label_column: label
max_seq_length: 128                # tokens of a sample
)";

constexpr std::string_view kMultipleChoice = R"(task: multiple_choice
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines, JSON, CSV or TSV. The label counts the choices from 0.
train_file: train.jsonl
validation_file: validation.jsonl
context_column: question
choice_columns: [choice0, choice1, choice2, choice3, choice4]
label_column: label
max_seq_length: 128                # tokens of a question with one of its choices
)";

constexpr std::string_view kTokenClassification = R"(task: token_classification
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines or JSON with a list of words and a list of their labels in each row, or CoNLL
# text (*.conll).
train_file: train.jsonl
validation_file: validation.jsonl
text_column: tokens
label_column: ner_tags
max_seq_length: 128                # tokens of a sample
)";

constexpr std::string_view kQuestionAnswering = R"(task: question_answering
output_dir: run                    # checkpoints, results and the finished model

# Data: SQuAD's JSON, or rows with id, question, context and answers.
train_file: train.json
validation_file: validation.json
max_seq_length: 384                # tokens of a question with a window of its context
doc_stride: 128                    # tokens that neighbouring windows share
# version_2_with_negative: true    # where some questions have no answer
)";

// Number of epochs, batch size and learning rate, as the papers take them for the kind of work.
std::string updates(std::string_view epochs, std::string_view rate) {
  return "\n# One update sees per_device_train_batch_size x gradient_accumulation_steps samples.\n"
         "num_train_epochs: " +
         std::string(epochs) +
         "\nper_device_train_batch_size: 16\ngradient_accumulation_steps: 1\nlearning_rate: " +
         std::string(rate) +
         "\nwarmup_steps: 0.06                 # below 1: a share of all updates\n"
         "weight_decay: 0.01\nseed: 42\n"
         "# memory_budget: 4GiB              # stay under it: the update stays, its cut follows\n";
}

constexpr std::string_view kRecords = R"(
# What is shown, evaluated and saved, in updates.
logging_steps: 50
eval_strategy: steps
eval_steps: 500
save_steps: 500
save_total_limit: 2                # complete checkpoints that are kept
report_to: tensorboard             # files in run/runs; none: no such files
)";

}  // namespace

std::string initial_yaml(std::string_view task) {
  struct Kind {
    std::string_view title;
    std::string_view data;
  };
  static const std::map<std::string, Kind, std::less<>> kinds = {
      {"mlm", {"Trains a masked language model from scratch on your own text.", kMaskedLm}},
      {"pretraining",
       {"Pretrains a model from scratch on your own documents, as BERT was.", kPretraining}},
      {"sequence_classification",
       {"Teaches a model to classify texts or pairs of texts, or to give them a number.",
        kSequenceClassification}},
      {"multiple_choice", {"Teaches a model to choose an answer.", kMultipleChoice}},
      {"token_classification", {"Teaches a model to label words.", kTokenClassification}},
      {"question_answering",
       {"Teaches a model to find the answer in a text.", kQuestionAnswering}}};
  const auto found = kinds.find(task);
  if (found == kinds.end()) {
    std::vector<std::string> names;
    for (const auto& [name, kind] : kinds) names.push_back(name);
    throw Error(ErrorKind::kUsage,
                "there is no task '" + std::string(task) + "'; the tasks are " + join(names));
  }
  const bool fresh = task == "mlm" || task == "pretraining";
  return "# " + std::string(found->second.title) + "\n" + std::string(kStart) +
         std::string(found->second.data) + std::string(fresh ? "" : kPretrainedModel) +
         updates("3", fresh ? "1e-4" : "3e-5") + std::string(kRecords);
}

}  // namespace finetune
