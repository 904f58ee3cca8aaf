// SPDX-License-Identifier: MIT
#include "finetune/config/task_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void TaskArgs::describe(FieldList& field) {
  field.section("Single tasks");
  field("mlm_probability", &TaskArgs::mlm_probability,
        "Share of the tokens to be predicted, in mlm and pretraining.",
        {.range = {.min = 0, .max = 1, .above_min = true}, .resume = ResumePolicy::kFixed});
  field("whole_word_mask", &TaskArgs::whole_word_mask,
        "Mask all tokens of a word together, in mlm and pretraining.",
        {.resume = ResumePolicy::kFixed});
  describe_pretraining(field);
  field("problem_type", &TaskArgs::problem_type,
        "sequence_classification: what a label is; unset goes by the labels: numbers with a "
        "fraction, lists, or anything else.",
        {.choices = {"regression", "single_label_classification", "multi_label_classification"},
         .resume = ResumePolicy::kFixed});
  field("metric_name", &TaskArgs::metric_name,
        "sequence_classification: accuracy, f1, roc_auc, matthews_correlation, mse, ..., or a task "
        "of GLUE for what is reported there, or a list of these; unset reports all that the labels "
        "allow, roc_auc aside.");
  field("class_weights", &TaskArgs::class_weights,
        "Weight of each class in the loss of sequence_classification and token_classification, as "
        "torch's CrossEntropyLoss(weight=...) takes it: balanced (samples / (classes * samples of "
        "the class), counted in the training data), a list in the order of the labels, or a "
        "mapping of labels to weights, 1 where a label is left out; unset or none: all alike.",
        {.named = true, .listed = true});
  field("label_all_tokens", &TaskArgs::label_all_tokens,
        "token_classification: every token of a word has its label, not the first alone.",
        {.resume = ResumePolicy::kFixed});
  field("return_entity_level_metrics", &TaskArgs::return_entity_level_metrics,
        "token_classification: metrics of each kind of entity too.");
  field("doc_stride", &TaskArgs::doc_stride,
        "question_answering: tokens that two neighbouring windows of a long context share.",
        {.range = {.min = 0, .max = 1 << 20}, .resume = ResumePolicy::kFixed});
  field("max_answer_length", &TaskArgs::max_answer_length,
        "question_answering: tokens of an answer at most.", {.range = {.min = 1, .max = 1 << 20}});
  field("n_best_size", &TaskArgs::n_best_size,
        "question_answering: best first and last tokens that are combined to answers.",
        {.range = {.min = 1, .max = 10000}});
  field("version_2_with_negative", &TaskArgs::version_2_with_negative,
        "question_answering: some questions have no answer.", {.resume = ResumePolicy::kFixed});
  field("null_score_diff_threshold", &TaskArgs::null_score_diff_threshold,
        "question_answering: no answer is predicted where its score is better than the best "
        "answer's by more than this.");
}

void TaskArgs::describe_pretraining(FieldList& field) {
  field("use_nsp", &TaskArgs::use_nsp,
        "pretraining: learn from pairs of segments whether the second follows the first; false "
        "makes one segment of each example.",
        {.resume = ResumePolicy::kFixed});
  field("dupe_factor", &TaskArgs::dupe_factor,
        "pretraining: how often an epoch goes through the documents, each time with other pairs "
        "and masks.",
        {.range = {.min = 1, .max = 1000}, .resume = ResumePolicy::kFixed});
  field("short_seq_prob", &TaskArgs::short_seq_prob,
        "pretraining: share of the examples that are made shorter than max_seq_length.",
        {.range = {.min = 0, .max = 1}, .resume = ResumePolicy::kFixed});
  field("max_predictions_per_seq", &TaskArgs::max_predictions_per_seq,
        "pretraining: masked tokens of an example at most; unset takes mlm_probability of "
        "max_seq_length.",
        {.range = {.min = 1, .max = 1 << 20}, .resume = ResumePolicy::kFixed});
  field("sentence_delimiters", &TaskArgs::sentence_delimiters,
        "pretraining: what ends a sentence, as the end of a line does; of ASCII characters only "
        "where white space follows.",
        {.resume = ResumePolicy::kFixed});
  field("prepare_output_dir", &TaskArgs::prepare_output_dir,
        "pretraining: folder that `finetune prepare` writes TFRecord shards to, for train_file.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("num_shards", &TaskArgs::num_shards, "pretraining: shards that `finetune prepare` writes.",
        {.range = {.min = 1, .max = 99999}, .resume = ResumePolicy::kFree});
}

}  // namespace finetune
