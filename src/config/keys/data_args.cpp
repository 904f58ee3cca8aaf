// SPDX-License-Identifier: MIT
#include "finetune/config/data_args.h"

#include "config/keys/words.h"
#include "finetune/config/fields.h"

namespace finetune {

void DataArgs::describe(FieldList& field) {
  field.section("Data");
  describe_files(field);
  field("max_seq_length", &DataArgs::max_seq_length,
        "Maximum tokens of a sample, special tokens included; unset: 128 for "
        "sequence_classification, 384 for question_answering, the model's maximum for pretraining, "
        "else the model's maximum but at most 1024.",
        {.range = {.min = 3, .max = 1 << 20}, .resume = ResumePolicy::kFixed});
  field("line_by_line", &DataArgs::line_by_line,
        "Treat every line as a sample in mlm and clm, instead of splitting the joined text into "
        "blocks; in pretraining as a document.",
        {.resume = ResumePolicy::kFixed});
  field("keep_linebreaks", &DataArgs::keep_linebreaks,
        "clm: keep the line break of each line of a text file when lines are joined.",
        {.resume = ResumePolicy::kFixed});
  field("pad_to_max_length", &DataArgs::pad_to_max_length,
        "Pad every sample to max_seq_length, instead of to the longest of its batch.");
  field("packing", &DataArgs::packing,
        "Put several samples that do not attend to each other into each training row of "
        "max_seq_length, in mlm, clm and sft; batch sizes count rows.",
        {.resume = ResumePolicy::kFixed});
  field("encoding_errors", &DataArgs::encoding_errors,
        "Handling of bytes that are not valid UTF-8: strict is an error with file, line and byte; "
        "replace turns them into U+FFFD.",
        {.choices = {"strict", "replace"}, .resume = ResumePolicy::kFixed});
  describe_delimited(field);
  describe_columns(field);
  field("streaming", &DataArgs::streaming,
        "Read and tokenise train_file during training, in the order of a shuffle buffer and "
        "without cache_dir; needs max_steps.",
        {.resume = ResumePolicy::kFixed});
  field("shuffle_buffer_size", &DataArgs::shuffle_buffer_size,
        "Number of samples in the shuffle buffer of streaming; 1 keeps the order of the files.",
        {.range = {.min = 1, .max = 1 << 24}, .resume = ResumePolicy::kFixed});
  field("cache_dir", &DataArgs::cache_dir,
        "Folder for tokenised data, which later sessions use again.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("overwrite_cache", &DataArgs::overwrite_cache,
        "Tokenise again at every start, even if cache_dir contains the tokens.",
        {.resume = ResumePolicy::kFree});
  field("preprocessing_num_workers", &DataArgs::preprocessing_num_workers,
        "Number of threads that tokenise; unset: one per core.",
        {.range = {.min = 1, .max = 1024}, .resume = ResumePolicy::kFree});
}

void DataArgs::describe_files(FieldList& field) {
  field("train_file", &DataArgs::train_file,
        "File to train on, or a list, glob or folder of several; a list of {path, weight} mixes "
        "them by weight, and {name: {path, loss_type, loss_kwargs}} makes each update of one of "
        "them.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("train_file_weights", &DataArgs::train_file_weights,
        "Weights of train_file's entries in a mixture: each entry's fraction of an epoch, which "
        "contains every sample at least once.",
        {.resume = ResumePolicy::kFixed});
  field(
      "train_file_sets", &DataArgs::train_file_sets,
      "embedding: loss_type and loss_kwargs of train_file's entries by name, where each update is "
      "made of the samples of one entry.",
      {.resume = ResumePolicy::kFixed});
  field("validation_file", &DataArgs::validation_file,
        "File to evaluate on, or a list, glob or folder of several.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("test_file", &DataArgs::test_file,
        "File to predict on (do_predict), or a list, glob or folder of several; labels are not "
        "needed.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("validation_split_percentage", &DataArgs::validation_split_percentage,
        "Percentage of train_file's rows held out for evaluation if validation_file is unset: the "
        "first ones in mlm and clm; in tasks with labels rows drawn by the seed, and only if this "
        "key "
        "is set. 0 holds out none.",
        {.range = {.min = 0, .max = 99}, .resume = ResumePolicy::kFixed});
  field("max_train_samples", &DataArgs::max_train_samples, "Use only the first N training samples.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFixed});
  field("max_eval_samples", &DataArgs::max_eval_samples, "Use only the first N evaluation samples.",
        {.range = {.min = 1}});
  field("max_predict_samples", &DataArgs::max_predict_samples,
        "Use only the first N samples for prediction.",
        {.range = {.min = 1}, .resume = ResumePolicy::kFree});
}

void DataArgs::describe_delimited(FieldList& field) {
  // Free, because the resulting samples are compared by content.
  field("delimiter", &DataArgs::delimiter,
        "CSV and TSV: separator of fields, one character or tab, comma, semicolon or pipe; unset: "
        "guessed from the file's ending and its first rows.",
        {.spellings =
             {{"tab", "\t"}, {"\\t", "\t"}, {"comma", ","}, {"semicolon", ";"}, {"pipe", "|"}},
         .resume = ResumePolicy::kFree});
  field("quoting", &DataArgs::quoting,
        "CSV and TSV: meaning of a quote at the beginning of a field; standard: the field ends at "
        "the closing quote; none: quotes are text, as in GLUE's files; auto: none for "
        "tab-separated files that cannot be read otherwise, else standard.",
        {.choices = {"auto", "standard", "none"}, .resume = ResumePolicy::kFree});
  field("header", &DataArgs::header,
        "CSV and TSV: take column names from the first line; false names them column_1, column_2, "
        "...",
        {.resume = ResumePolicy::kFree});
}

void DataArgs::describe_columns(FieldList& field) {
  // Free, because the resulting samples are compared by content: a guessed column may be named
  // later.
  const FieldSpec column{.resume = ResumePolicy::kFree};
  field("text_column", &DataArgs::text_column,
        "Column of the text, the words (token_classification), the question (question_answering) "
        "or the beginning of each choice (multiple_choice); unset: guessed.",
        column);
  field("text_pair_column", &DataArgs::text_pair_column,
        "sequence_classification: column of the second text; unset: guessed.", column);
  field("label_column", &DataArgs::label_column,
        "Column of the label, the labels or the answers; unset: guessed.", column);
  field("context_column", &DataArgs::context_column,
        "Column of the context of the choices or of the answer; unset: guessed.", column);
  field("choice_columns", &DataArgs::choice_columns,
        "multiple_choice: columns of the choices, or one column with lists; unset: guessed.",
        column);
}

void LoaderArgs::describe(FieldList& field) {
  field.section("Batches");
  field("train_sampling_strategy", &LoaderArgs::train_sampling_strategy,
        "Order of samples; group_by_length is random, but puts samples of similar length into one "
        "batch, which pads less.",
        {.choices = {"random", "sequential", "group_by_length", "batch_rebalance"},
         .available = {"sequential", "group_by_length"},
         .reason = kNotYet});
  field(
      "batch_sampler", &LoaderArgs::batch_sampler,
      "embedding: no_duplicates puts no two samples with an equal text into an update, so that no "
      "positive of another sample counts as a negative.",
      {.choices = {"batch_sampler", "no_duplicates"}, .resume = ResumePolicy::kFixed});
  field(
      "multi_dataset_batch_sampler", &LoaderArgs::multi_dataset_batch_sampler,
      "Order of train_file_sets: proportional gives each as many updates as it has samples for, in "
      "random order; round_robin takes them in turn until one has no further samples.",
      {.choices = {"proportional", "round_robin"}, .resume = ResumePolicy::kFixed});
  field("dataloader_drop_last", &LoaderArgs::dataloader_drop_last,
        "Leave out the last batch of an epoch if it is incomplete.");
  field(
      "dataloader_num_workers", &LoaderArgs::dataloader_num_workers,
      "Number of threads that prepare batches in advance; 0 prepares them in the training thread.",
      {.range = {.min = 0, .max = 1024}, .resume = ResumePolicy::kFree});
  field("dataloader_prefetch_factor", &LoaderArgs::dataloader_prefetch_factor,
        "Number of batches that each worker prepares in advance; unset: 2.",
        {.range = {.min = 1, .max = 1024}, .resume = ResumePolicy::kFree});
}

}  // namespace finetune
