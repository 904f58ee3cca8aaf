// SPDX-License-Identifier: MIT
#include "finetune/config/data_args.h"

#include "config/words.h"
#include "finetune/config/fields.h"

namespace finetune {

void DataArgs::describe(FieldList& field) {
  field.section("Data");
  field(
      "train_file", &DataArgs::train_file,
      "File to train on, or a list, glob or folder of several; or a list of {path, weight}, which "
      "mixes them by weight.",
      {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("train_file_weights", &DataArgs::train_file_weights,
        "Weights of train_file's entries, where these are mixed: their shares of an epoch, which "
        "sees every sample once at least.",
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
  field("max_seq_length", &DataArgs::max_seq_length,
        "Tokens of a sample, special ones included; unset takes 128 for sequence_classification, "
        "384 for question_answering, what the model allows for pretraining, else the same, at most "
        "1024.",
        {.range = {.min = 3, .max = 1 << 20}, .resume = ResumePolicy::kFixed});
  field("line_by_line", &DataArgs::line_by_line,
        "Make every line a sample in mlm and clm, instead of cutting the joined text into blocks, "
        "and "
        "a document in pretraining.",
        {.resume = ResumePolicy::kFixed});
  field("keep_linebreaks", &DataArgs::keep_linebreaks,
        "clm: the lines of a text file end in a line break where they are joined.",
        {.resume = ResumePolicy::kFixed});
  field("pad_to_max_length", &DataArgs::pad_to_max_length,
        "Pad every sample to max_seq_length, instead of to the longest of its batch.");
  field("packing", &DataArgs::packing,
        "Fill each training row of max_seq_length with several samples that do not see each other, "
        "in "
        "mlm and clm; batch sizes count rows.",
        {.resume = ResumePolicy::kFixed});
  field("encoding_errors", &DataArgs::encoding_errors,
        "What becomes of bytes that are no UTF-8: strict, an error with file, line and byte; "
        "replace, U+FFFD.",
        {.choices = {"strict", "replace"}, .resume = ResumePolicy::kFixed});
  describe_delimited(field);
  describe_columns(field);
  field("streaming", &DataArgs::streaming,
        "Read and tokenize train_file while training, in the order of a shuffle buffer, without "
        "cache_dir; needs max_steps.",
        {.resume = ResumePolicy::kFixed});
  field("shuffle_buffer_size", &DataArgs::shuffle_buffer_size,
        "Samples that the shuffle buffer of streaming holds; 1 keeps the order of the files.",
        {.range = {.min = 1, .max = 1 << 24}, .resume = ResumePolicy::kFixed});
  field("cache_dir", &DataArgs::cache_dir,
        "Folder that keeps tokenised data from one session to the next.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("overwrite_cache", &DataArgs::overwrite_cache,
        "Tokenise again at every start, even where cache_dir holds the tokens.",
        {.resume = ResumePolicy::kFree});
  field("preprocessing_num_workers", &DataArgs::preprocessing_num_workers,
        "Threads that tokenise; unset takes one per core.",
        {.range = {.min = 1, .max = 1024}, .resume = ResumePolicy::kFree});
}

void DataArgs::describe_delimited(FieldList& field) {
  // Free, because the resulting samples are compared by content.
  field("delimiter", &DataArgs::delimiter,
        "CSV and TSV: character between two fields, or tab, comma, semicolon or pipe; unset takes "
        "the comma or tab of the file's ending, or what the first rows show.",
        {.spellings =
             {{"tab", "\t"}, {"\\t", "\t"}, {"comma", ","}, {"semicolon", ";"}, {"pipe", "|"}},
         .resume = ResumePolicy::kFree});
  field(
      "quoting", &DataArgs::quoting,
      "CSV and TSV: what a quote at the beginning of a field means; standard: the field ends at "
      "the next one; none: nothing, as in GLUE's files; auto: standard, but none in tab-separated "
      "files that only this fits.",
      {.choices = {"auto", "standard", "none"}, .resume = ResumePolicy::kFree});
  field("header", &DataArgs::header,
        "CSV and TSV: the first line names the columns; false calls them column_1, column_2, ...",
        {.resume = ResumePolicy::kFree});
}

void DataArgs::describe_columns(FieldList& field) {
  // Free, because the resulting samples are compared by content: a guessed column may be named
  // later.
  const FieldSpec column{.resume = ResumePolicy::kFree};
  field("text_column", &DataArgs::text_column,
        "Column that holds the text, the words (token_classification), the question "
        "(question_answering) or the beginning of each choice (multiple_choice); unset guesses.",
        column);
  field("text_pair_column", &DataArgs::text_pair_column,
        "sequence_classification: column that holds the second text; unset guesses.", column);
  field("label_column", &DataArgs::label_column,
        "Column that holds the label, the labels or the answers; unset guesses.", column);
  field("context_column", &DataArgs::context_column,
        "Column with the context of the choices or of the answer; unset: guessed.", column);
  field("choice_columns", &DataArgs::choice_columns,
        "multiple_choice: columns that hold the choices, or one that holds lists; unset guesses.",
        column);
}

void LoaderArgs::describe(FieldList& field) {
  field.section("Batches");
  field("train_sampling_strategy", &LoaderArgs::train_sampling_strategy,
        "Order in which samples are drawn; group_by_length: at random, but samples of like length "
        "together, which pads less.",
        {.choices = {"random", "sequential", "group_by_length", "batch_rebalance"},
         .available = {"sequential", "group_by_length"},
         .reason = kNotYet});
  field("dataloader_drop_last", &LoaderArgs::dataloader_drop_last,
        "Leave out the last batch of an epoch where it is not full.");
  field("dataloader_num_workers", &LoaderArgs::dataloader_num_workers,
        "Threads that make batches ahead of the step; 0 makes them in the step's own thread.",
        {.range = {.min = 0, .max = 1024}, .resume = ResumePolicy::kFree});
  field("dataloader_prefetch_factor", &LoaderArgs::dataloader_prefetch_factor,
        "Batches that each worker makes ahead; unset takes 2.",
        {.range = {.min = 1, .max = 1024}, .resume = ResumePolicy::kFree});
}

}  // namespace finetune
