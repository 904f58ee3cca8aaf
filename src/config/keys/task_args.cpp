// SPDX-License-Identifier: MIT
#include "finetune/config/task_args.h"

#include "finetune/config/fields.h"

namespace finetune {

void TaskArgs::describe(FieldList& field) {
  field.section("Single tasks");
  field("mlm_probability", &TaskArgs::mlm_probability,
        "Fraction of tokens to predict, in mlm and pretraining.",
        {.range = {.min = 0, .max = 1, .above_min = true}, .resume = ResumePolicy::kFixed});
  field("whole_word_mask", &TaskArgs::whole_word_mask,
        "Mask all tokens of a word together, in mlm and pretraining.",
        {.resume = ResumePolicy::kFixed});
  describe_pretraining(field);
  field("problem_type", &TaskArgs::problem_type,
        "sequence_classification: kind of labels; unset: regression for numbers with a fraction, "
        "multi_label_classification for lists, else single_label_classification.",
        {.choices = {"regression", "single_label_classification", "multi_label_classification"},
         .resume = ResumePolicy::kFixed});
  field("metric_name", &TaskArgs::metric_name,
        "sequence_classification: a metric (accuracy, f1, roc_auc, matthews_correlation, mse, "
        "...), a task of GLUE (all metrics of that task), or a list of these; unset: all that fit "
        "the labels except roc_auc.");
  field("class_weights", &TaskArgs::class_weights,
        "Weight of each class in the loss of sequence_classification and token_classification, as "
        "in torch's CrossEntropyLoss(weight=...): balanced (samples / (classes * samples of the "
        "class), counted in the training data), a list in the order of the labels, or a mapping of "
        "labels to weights, 1 for labels that it leaves out; unset or none: 1 for all.",
        {.named = true, .listed = true});
  field("label_all_tokens", &TaskArgs::label_all_tokens,
        "token_classification: label every token of a word, not only the first.",
        {.resume = ResumePolicy::kFixed});
  field("return_entity_level_metrics", &TaskArgs::return_entity_level_metrics,
        "token_classification: report metrics of each kind of entity too.");
  field("doc_stride", &TaskArgs::doc_stride,
        "question_answering: number of tokens that neighbouring windows of a long context share.",
        {.range = {.min = 0, .max = 1 << 20}, .resume = ResumePolicy::kFixed});
  field("max_answer_length", &TaskArgs::max_answer_length,
        "question_answering: maximum tokens of an answer.", {.range = {.min = 1, .max = 1 << 20}});
  field("n_best_size", &TaskArgs::n_best_size,
        "question_answering: number of best first tokens, and of best last tokens, that are "
        "combined to answers.",
        {.range = {.min = 1, .max = 10000}});
  field("version_2_with_negative", &TaskArgs::version_2_with_negative,
        "question_answering: allow questions without an answer.", {.resume = ResumePolicy::kFixed});
  field("null_score_diff_threshold", &TaskArgs::null_score_diff_threshold,
        "question_answering: predict no answer if its score exceeds the best answer's score by "
        "more than this.");
  field("shuffle_options", &TaskArgs::shuffle_options,
        "decision: show the options of a choice in another order in each epoch, one of up to "
        "eight, so that no label is learned for its position; false: in the order of the rows.",
        {.resume = ResumePolicy::kFixed});
  field("calibrate", &TaskArgs::calibrate,
        "Fit a temperature to the validation data (in decision one for each type of question) and "
        "store it with the finished model of decision or sequence_classification, so that its "
        "probabilities are as sure as they are right; the weights do not depend on it. Unset: true "
        "in decision.",
        {.resume = ResumePolicy::kFree});
  field("decision_head", &TaskArgs::decision_head,
        "decision: what scores the options: labels, the logits of a decoder's tokens; jev, a "
        "matrix that reads each mark, of a decoder or an encoder (transformers' "
        "JevForDecision); or laya, layers over an encoder that read a mark of each option, for "
        "laya.load().",
        {.choices = {"labels", "jev", "laya"}, .resume = ResumePolicy::kFixed});
  field("decision_template_path", &TaskArgs::decision_template_path,
        "decision: a Jinja file that renders state with question, or with questions, and marks "
        "where each is answered by <|mark|>; unset: the starting model's decision_template.jinja, "
        "else the prompt of transformers' servers in the chat template.",
        {.resume = ResumePolicy::kFixed, .path = PathKind::kPath});
  field("decision_labels", &TaskArgs::decision_labels,
        "decision: the texts of the tokens whose logits score the options, by type of question, as "
        "in decision.json: {noul: [\"Yes\", \"No\"], choice: [\"A\", \"B\"]}; unset: those of the "
        "starting model's decision.json, else Yes and No, or A to Z.",
        {.resume = ResumePolicy::kFixed});
}

void TaskArgs::describe_pretraining(FieldList& field) {
  field("use_nsp", &TaskArgs::use_nsp,
        "pretraining: use pairs of segments and predict whether the second follows the first; "
        "false uses one segment per example.",
        {.resume = ResumePolicy::kFixed});
  field("dupe_factor", &TaskArgs::dupe_factor,
        "pretraining: number of passes over the documents per epoch, each with other pairs and "
        "masks.",
        {.range = {.min = 1, .max = 1000}, .resume = ResumePolicy::kFixed});
  field("short_seq_prob", &TaskArgs::short_seq_prob,
        "pretraining: fraction of examples that are shorter than max_seq_length.",
        {.range = {.min = 0, .max = 1}, .resume = ResumePolicy::kFixed});
  field("max_predictions_per_seq", &TaskArgs::max_predictions_per_seq,
        "pretraining: maximum masked tokens of an example; unset: mlm_probability times "
        "max_seq_length.",
        {.range = {.min = 1, .max = 1 << 20}, .resume = ResumePolicy::kFixed});
  field("sentence_delimiters", &TaskArgs::sentence_delimiters,
        "pretraining: characters that end a sentence, in addition to the end of a line; an ASCII "
        "character only before white space.",
        {.resume = ResumePolicy::kFixed});
  field("prepare_output_dir", &TaskArgs::prepare_output_dir,
        "pretraining: folder for the TFRecord shards of `finetune prepare`, which train_file can "
        "name.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("num_shards", &TaskArgs::num_shards,
        "pretraining: number of shards that `finetune prepare` writes.",
        {.range = {.min = 1, .max = 99999}, .resume = ResumePolicy::kFree});
}

}  // namespace finetune
